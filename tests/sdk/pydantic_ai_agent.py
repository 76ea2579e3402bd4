"""Uses weir through Pydantic AI. Arguments: origin api_key model, `chat`, `responses`, `messages` or `gemini`."""

import sys

import anthropic
import openai
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelHTTPError, NativeOutput
from pydantic_ai.direct import model_request_stream_sync
from pydantic_ai.messages import ModelRequest, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

origin, api_key, model, kind = sys.argv[1:]


def through(name=model, key=api_key):
    """A model of Pydantic AI's that asks weir."""
    if kind == "messages":
        client = anthropic.AsyncAnthropic(base_url=origin, api_key=key, max_retries=0)
        # The library knows the abilities of Anthropic's own models alone.
        profile = {"supports_json_schema_output": True}
        return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client), profile=profile)
    if kind == "gemini":
        return GoogleModel(name, provider=GoogleProvider(api_key=key, base_url=origin))
    client = openai.AsyncOpenAI(base_url=f"{origin}/v1", api_key=key, max_retries=0)
    made = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[kind]
    return made(name, provider=OpenAIProvider(openai_client=client))


class Answer(BaseModel):
    """An answer."""

    answer: int


plain = Agent(through())
whole = plain.run_sync("Hello")
assert whole.output == "Hello there", whole
assert (whole.usage.input_tokens, whole.usage.output_tokens) == (12, 7), whole.usage

stream = plain.run_stream_sync("Hello")
assert "".join(stream.stream_text(delta=True)) == "Hello there"
assert (stream.usage.input_tokens, stream.usage.output_tokens) == (12, 7), stream.usage

seen = []
able = Agent(through())


@able.tool_plain
def look(at: int = 0) -> str:
    """Looks."""
    seen.append(at)
    return "seen"


told = able.run_sync("Hello")
assert told.output == "Hello there" and seen == [1], (told, seen)

schema = {"type": "object", "properties": {"at": {"type": "integer"}}}
tools = ModelRequestParameters(function_tools=[ToolDefinition(name="look", parameters_json_schema=schema)])
question = [ModelRequest.user_text_prompt("Hello")]
with model_request_stream_sync(through(), question, model_request_parameters=tools) as stream:
    list(stream)
    calls = [part for part in stream.response.parts if isinstance(part, ToolCallPart)]
assert [call.args_as_dict() for call in calls] == [{"at": 1}, {}], calls

picture = BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")
assert plain.run_sync(["What is it?", picture]).output == "Hello there"

parsed = Agent(through(), output_type=NativeOutput(Answer)).run_sync("Hello")
assert parsed.output == Answer(answer=42), parsed


def refused(status, word, agent, **fields):
    """Checks that a request fails as Pydantic AI's error with this status and this word of weir's."""
    try:
        agent.run_sync("Hello", **fields)
    except ModelHTTPError as error:
        assert error.status_code == status and word in str(error), error
        return
    raise AssertionError(f"{status} was expected")


refused(529 if kind == "messages" else 503, "", plain)
refused(404, "none", Agent(through("none")))
refused(400, "must be from 0 to 1", plain, model_settings={"top_p": 2})
refused(401, "key", Agent(through(key="inf_wrong")))
print(model, "all as expected")
