"""Uses weir through LiteLLM. Arguments: origin api_key model, `openai`, `openai/responses`, `anthropic` or `gemini`."""

import json
import os
import sys

# Without this, the package downloads its list of models.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402
from pydantic import BaseModel  # noqa: E402

origin, api_key, model, kind = sys.argv[1:]
base = {"anthropic": origin, "gemini": f"{origin}/v1beta"}.get(kind, f"{origin}/v1")
question = [{"role": "user", "content": "Hello"}]
if kind == "gemini":
    # Without this, the package leaves out the schema of a model that it does not know.
    terms = {"litellm_provider": "gemini", "mode": "chat", "supports_response_schema": True}
    litellm.register_model({name: terms for name in (model, f"gemini/{model}")})
parameters = {"type": "object", "properties": {"at": {"type": "integer"}}}
tools = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": parameters}}]


class Answer(BaseModel):
    """An answer."""

    answer: int


def ask(name=model, key=api_key, messages=question, **fields):
    return litellm.completion(
        model=f"{kind}/{name}", api_base=base, api_key=key, messages=messages, num_retries=0, max_retries=0, **fields
    )


def arguments(message):
    return [json.loads(call.function.arguments or "{}") for call in message.tool_calls]


whole = ask()
assert whole.choices[0].message.content == "Hello there", whole
assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (12, 7), whole

pieces = list(ask(stream=True, stream_options={"include_usage": True}))
said = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
assert said == "Hello there", pieces
usage = pieces[-1].usage
assert (usage.prompt_tokens, usage.completion_tokens) == (12, 7), pieces

asked = ask(tools=tools).choices[0].message
[call] = asked.tool_calls
assert call.function.name == "look" and arguments(asked) == [{"at": 1}], asked
seen = {"role": "tool", "tool_call_id": call.id, "content": "seen"}
told = ask(messages=[*question, asked.model_dump(), seen], tools=tools)
assert told.choices[0].message.content == "Hello there", told

pieces = list(ask(tools=tools, stream=True))
built = litellm.stream_chunk_builder(pieces, messages=question)
assert arguments(built.choices[0].message) == [{"at": 1}, {}], built

picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
looked = ask(messages=[{"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}])
assert looked.choices[0].message.content == "Hello there", looked

schema = {"name": "answer", "strict": True, "schema": {**Answer.model_json_schema(), "additionalProperties": False}}
parsed = ask(response_format={"type": "json_schema", "json_schema": schema})
assert Answer.model_validate_json(parsed.choices[0].message.content) == Answer(answer=42), parsed


def refused(expected, word, call):
    """Checks that a call fails as this error of LiteLLM's, with this word of weir's."""
    try:
        call()
    except expected as error:
        assert word in str(error), error
        return
    raise AssertionError(f"{expected} was expected")


overloaded = litellm.InternalServerError if kind == "anthropic" else litellm.ServiceUnavailableError
refused(overloaded, "", ask)
refused(litellm.NotFoundError, "none", lambda: ask("none"))
refused(litellm.BadRequestError, "must be from 0 to 1", lambda: ask(top_p=2))
refused(litellm.AuthenticationError, "key", lambda: ask(key="inf_wrong"))
print(model, "all as expected")
