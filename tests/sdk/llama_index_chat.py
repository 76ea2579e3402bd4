"""Uses weir through LlamaIndex. Arguments: origin api_key model, `chat`, `responses`, `messages` or `gemini`."""

import sys

import anthropic
import openai
from google.genai import errors
from llama_index.core.llms import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.tools import FunctionTool
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.google_genai import GoogleGenAI
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

origin, api_key, model, kind = sys.argv[1:]


def through(name=model, key=api_key, **more):
    """A model of LlamaIndex's that asks weir."""
    if kind == "messages":
        # The package knows models by name, and takes no other names. The first is an alias of the test's model. It also
        # sends `temperature` and makes `MessageParam` (llama-index-llms-anthropic 0.12.3): anthropic 1.0.0 has no such
        # argument, and 2.0.0 no such class. So `llama_index.txt` has an earlier version.
        known = {model: "claude-3-7-sonnet-latest", "none": "claude-3-haiku-latest"}
        return Anthropic(model=known[name], base_url=origin, api_key=key, max_retries=0, **more)
    if kind == "gemini":
        limits = {"context_window": 8_000, "max_tokens": 1_000}
        return GoogleGenAI(model=name, api_key=key, http_options={"base_url": origin}, max_retries=0, **limits, **more)
    settings = {"api_base": f"{origin}/v1", "api_key": key, "max_retries": 0}
    if kind == "chat":
        return OpenAILike(model=name, is_chat_model=True, is_function_calling_model=True, **settings, **more)
    return OpenAIResponses(model=name, context_window=8_000, **settings, **more)


NAMES = {
    "chat": ("prompt_tokens", "completion_tokens"),
    "gemini": ("prompt_token_count", "candidates_token_count"),
}


def used(response):
    """The tokens of input and output."""
    raw = dict(response.raw)
    usage = dict(raw.get("usage") or raw["usage_metadata"])
    return tuple(usage[name] for name in NAMES.get(kind, ("input_tokens", "output_tokens")))


def look(at: int = 0) -> str:
    """Looks."""
    return "seen"


class Answer(BaseModel):
    """An answer."""

    answer: int


client = through()
question = ChatMessage(role=MessageRole.USER, content="Hello")
whole = client.chat([question])
assert whole.message.content == "Hello there" and used(whole) == (12, 7), whole

pieces = list(client.stream_chat([question]))
assert "".join(piece.delta or "" for piece in pieces) == "Hello there", pieces
assert pieces[-1].message.content == "Hello there", pieces

tools = [FunctionTool.from_defaults(look)]
# The class for Anthropic's API leaves out a `user_msg` that is a `ChatMessage`.
able = {"chat_history": [question], "allow_parallel_tool_calls": True}
asked = client.chat_with_tools(tools, **able)
[call] = client.get_tool_calls_from_response(asked)
assert (call.tool_name, call.tool_kwargs) == ("look", {"at": 1}), asked
more = {"tool_call_id": call.tool_id, "name": call.tool_name}
seen = ChatMessage(role=MessageRole.TOOL, content="seen", additional_kwargs=more)
told = client.chat_with_tools(tools, chat_history=[question, asked.message, seen])
assert told.message.content == "Hello there", told

pieces = list(client.stream_chat_with_tools(tools, **able))
calls = client.get_tool_calls_from_response(pieces[-1])
if kind == "chat" and len(calls) > 2:
    # The package does not join the pieces of parallel calls that alternate, as one of the providers sends them.
    assert [call.tool_id for call in calls[:2]] == ["t1", "t2"], calls
else:
    assert [call.tool_kwargs for call in calls] == [{"at": 1}, {}], calls

picture = ImageBlock(image=b"iVBORw0KGgo=", image_mimetype="image/png")
looked = client.chat([ChatMessage(role=MessageRole.USER, blocks=[TextBlock(text="What is it?"), picture])])
assert looked.message.content == "Hello there", looked

schema = {**Answer.model_json_schema(), "additionalProperties": False}
named = {"name": "answer", "strict": True, "schema": schema}
structured = {
    "chat": {"response_format": {"type": "json_schema", "json_schema": named}},
    "responses": {"text": {"format": {"type": "json_schema", **named}}},
    "messages": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
    "gemini": {"generation_config": {"response_mime_type": "application/json", "response_json_schema": schema}},
}
parsed = client.chat([question], **structured[kind])
assert Answer.model_validate_json(parsed.message.content) == Answer(answer=42), parsed


def refused(expected, word, call):
    """Checks that a call fails as this error of the vendor's SDK, with this word of weir's."""
    try:
        call()
    except expected as error:
        assert word in str(error), error
        return
    raise AssertionError(f"{expected} was expected")


beyond = {"generation_config": {"top_p": 2}} if kind == "gemini" else {"top_p": 2}
if kind == "gemini":
    overloaded, unknown, invalid, stranger = errors.ServerError, *[errors.ClientError] * 3
else:
    sdk = anthropic if kind == "messages" else openai
    overloaded = anthropic.OverloadedError if kind == "messages" else openai.InternalServerError
    unknown = sdk.NotFoundError
    invalid, stranger = sdk.BadRequestError, sdk.AuthenticationError
refused(overloaded, "", lambda: client.chat([question]))
refused(unknown, "haiku" if kind == "messages" else "none", lambda: through("none").chat([question]))
refused(invalid, "must be from 0 to 1", lambda: client.chat([question], **beyond))
refused(stranger, "key", lambda: through(key="inf_wrong").chat([question]))
print(model, "all as expected")
