"""Runs twenty turns of tools through Pydantic AI. Arguments: origin api_key model, `chat`, `responses`, `messages` or `gemini`."""

import sys

import anthropic
import openai
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider

origin, api_key, model, kind = sys.argv[1:]


def through():
    """A model of Pydantic AI's that asks weir."""
    if kind == "messages":
        client = anthropic.AsyncAnthropic(base_url=origin, api_key=api_key, max_retries=0)
        return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))
    if kind == "gemini":
        return GoogleModel(model, provider=GoogleProvider(api_key=api_key, base_url=origin))
    client = openai.AsyncOpenAI(base_url=f"{origin}/v1", api_key=api_key, max_retries=0)
    made = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[kind]
    return made(model, provider=OpenAIProvider(openai_client=client))


agent = Agent(through(), instructions="Be brief.")
seen = []


@agent.tool_plain
def look(at: int = 0) -> str:
    """Looks."""
    seen.append(at)
    return "seen"


done = agent.run_sync("Look around.")
assert done.output == "Hello there" and len(seen) == 40, (done.output, len(seen))
print(kind, "all as expected")
