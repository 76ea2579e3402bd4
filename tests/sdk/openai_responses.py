"""Uses weir through OpenAI's SDK, by Responses. Arguments: base_url api_key model."""

import sys

import openai
import pydantic

base_url, api_key, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0)

answer = client.responses.create(model=model, input="żółw", instructions="Be brief.")
assert answer.output_text == "You said: żółw", answer
assert answer.status == "completed" and answer.error is None and answer.instructions == "Be brief.", answer
assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0, answer.usage
assert answer.usage.input_tokens_details.cached_tokens == answer.usage.output_tokens_details.reasoning_tokens == 0
# As strictly as the SDK's own types are.
type(answer).model_validate(answer.to_dict())

# The SDK checks the order of events itself, and puts the answer together.
with client.responses.stream(model=model, input="żółw") as stream:
    events = list(stream)
    final = stream.get_final_response()
pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
assert "".join(pieces) == "You said: żółw" == final.output_text and len(pieces) > 1, pieces
assert [event.sequence_number for event in events] == list(range(len(events))), events
assert events[0].type == "response.created" and events[-1].type == "response.completed", events

tools = [
    {
        "type": "function",
        "name": "look",
        "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}},
        "strict": False,
    }
]


def check_rich(answer):
    """Reasoning, a text and two calls."""
    thought, text, *calls = answer.output
    calls = [call for call in calls if call.type == "function_call"]
    assert thought.type == "reasoning" and thought.summary[0].text == "Hm.", thought
    assert text.content[0].text == "Hi there" == answer.output_text, text
    assert [(call.call_id, call.name) for call in calls] == [("t1", "look"), ("t2", "look")], calls
    type(answer).model_validate(answer.to_dict())


question = {"role": "user", "content": "Look."}
reasoning = {"effort": "low", "summary": "auto"}
kwargs = {"model": model, "tools": tools, "include": ["reasoning.encrypted_content"], "store": False}
first = client.responses.create(input=[question], reasoning=reasoning, **kwargs)
check_rich(first)
results = [{"type": "function_call_output", "call_id": id, "output": "seen"} for id in ("t1", "t2")]
second = client.responses.create(input=[question, *first.output, *results], **kwargs)
assert second.output_text == "You said: żółw", second

kwargs["store"] = openai.omit
with client.responses.stream(input=[question], **kwargs) as stream:
    done = [event.item.type for event in stream if event.type == "response.output_item.done"]
    streamed = stream.get_final_response()
check_rich(streamed)
assert done[:3] == ["reasoning", "message", "function_call"], done
third = client.responses.create(previous_response_id=streamed.id, input=results, **kwargs)
assert third.output_text == "You said: żółw" and third.previous_response_id == streamed.id, third


class Turtle(pydantic.BaseModel):
    name: str
    age: int


parsed = client.responses.parse(model=model, input="A turtle.", text_format=Turtle)
assert parsed.output_parsed == Turtle(name="żółw", age=99), parsed

for kwargs, kind, code, param in [
    ({"model": "none"}, openai.NotFoundError, "model_not_found", "model"),
    ({"extra_body": {"made_up": 1}}, openai.BadRequestError, "unsupported_parameter", "made_up"),
    ({"background": True}, openai.BadRequestError, None, "background"),
    ({"previous_response_id": "resp_1"}, openai.BadRequestError, "previous_response_not_found", "previous_response_id"),
    ({"model": "small", "instructions": "word " * 100}, openai.BadRequestError, "context_length_exceeded", "input"),
    ({"model": "costly"}, openai.RateLimitError, "insufficient_quota", None),
]:
    try:
        client.responses.create(**{"model": model, "input": "x", **kwargs})
        raise AssertionError(f"{kwargs} was served")
    except kind as error:
        assert (error.code, error.param) == (code, param), error

# A stream that breaks off in the middle raises.
pieces = []
try:
    for event in client.responses.create(model=model, input="x", stream=True):
        pieces.append(event.type)
    raise AssertionError("half an answer was taken for a whole one")
except openai.APIError as error:
    assert error.body["weir_code"] == "UPSTREAM_UNAVAILABLE", error.body
assert pieces[-1] == "response.output_text.delta", pieces

print("all as expected")
