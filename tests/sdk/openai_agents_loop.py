"""Runs twenty turns of tools through OpenAI's Agents SDK. Arguments: base_url api_key model, `chat` or `responses`."""

import sys

import openai
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from agents import set_tracing_disabled

base_url, api_key, name, kind = sys.argv[1:]
set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)
made = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[kind]
seen = []


@function_tool
def look(at: int = 0) -> str:
    """Looks."""
    seen.append(at)
    return "seen"


agent = Agent(
    name="Scout",
    instructions="Be brief.",
    tools=[look],
    model=made(model=name, openai_client=client),
    # The tool is strict, and the conversation stays with the client.
    model_settings=ModelSettings(store=False, parallel_tool_calls=True, max_tokens=2048),
)
done = Runner.run_sync(agent, "Look around.", max_turns=30)
assert done.final_output == "Hello there" and len(seen) == 40, (done.final_output, len(seen))
print(kind, "all as expected")
