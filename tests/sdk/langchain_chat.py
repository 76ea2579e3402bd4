"""Uses weir through LangChain. Arguments: origin api_key model, `openai` or `anthropic`."""

import sys

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

origin, api_key, model, kind = sys.argv[1:]


def chat(name=model, key=api_key):
    """A chat model of LangChain's that asks weir."""
    if kind == "openai":
        return ChatOpenAI(model=name, base_url=f"{origin}/v1", api_key=key, max_retries=0)
    return ChatAnthropic(model=name, base_url=origin, api_key=key, max_retries=0, max_tokens=1024)


@tool
def look(at: int = 0) -> str:
    """Looks."""
    return "seen"


class Answer(BaseModel):
    """An answer."""

    answer: int


client = chat()
whole = client.invoke("Hello")
assert whole.content == "Hello there", whole
assert whole.usage_metadata["input_tokens"] == 12 and whole.usage_metadata["output_tokens"] == 7, whole

pieces = list(client.stream("Hello"))
said = "".join(piece.text if isinstance(piece.text, str) else piece.text() for piece in pieces)
assert said == "Hello there", pieces

able = client.bind_tools([look])
question = HumanMessage("Hello")
asked = able.invoke([question])
[call] = asked.tool_calls
assert (call["name"], call["args"]) == ("look", {"at": 1}), asked
told = able.invoke([question, asked, ToolMessage("seen", tool_call_id=call["id"])])
assert told.content == "Hello there", told

whole = None
for piece in able.stream("Hello"):
    whole = piece if whole is None else whole + piece
assert [call["args"] for call in whole.tool_calls] == [{"at": 1}, {}], whole

picture = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
looked = client.invoke([HumanMessage([{"type": "text", "text": "What is it?"}, picture])])
assert looked.content == "Hello there", looked

parsed = client.with_structured_output(Answer, method="json_schema").invoke("Hello")
assert parsed == Answer(answer=42), parsed


def refused(expected, call, word=""):
    """Checks that a call fails as this error of the vendor's SDK, with this word of weir's."""
    try:
        call()
    except expected as error:
        assert word in str(error), error
        return
    raise AssertionError(f"{expected} was expected")


sdk = {"openai": openai, "anthropic": anthropic}[kind]
refused(sdk.InternalServerError, lambda: client.invoke("Hello"))
refused(sdk.NotFoundError, lambda: chat("none").invoke("Hello"))
refused(sdk.BadRequestError, lambda: client.invoke("Hello", top_p=2), "must be from 0 to 1")
refused(sdk.AuthenticationError, lambda: chat(key="inf_wrong").invoke("Hello"))
print(model, "all as expected")
