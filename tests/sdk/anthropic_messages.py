"""Uses weir through Anthropic's SDK as a newcomer would. Arguments: base_url api_key model signature."""

import sys

import anthropic

base_url, api_key, model, signature = sys.argv[1:]
client = anthropic.Anthropic(base_url=base_url, api_key=api_key, max_retries=0)
messages = [{"role": "user", "content": "żółw"}]
ask = {"model": model, "max_tokens": 2048, "messages": messages}

listed = client.models.list(limit=1)
assert model in [item.id for item in listed], "all pages are read, and the model is listed"
found = client.models.retrieve(model)
assert found.id == model and found.type == "model" and found.created_at.year > 2000, found

answer = client.messages.create(**ask)
assert [block.text for block in answer.content] == ["You said: żółw"], answer
assert (answer.stop_reason, answer.role, answer.type, answer.model) == ("end_turn", "assistant", "message", model)
assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0
assert answer._request_id

with client.messages.stream(**ask) as stream:
    pieces = list(stream.text_stream)
    final = stream.get_final_message()
assert "".join(pieces) == "You said: żółw" and len(pieces) > 1, pieces
assert final.stop_reason == "end_turn" and final.usage.output_tokens > 0 and final.usage.input_tokens > 0, final

tools = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}]
thinking = {"type": "enabled", "budget_tokens": 1024}


def check_rich(message):
    """Thinking, a text and two calls."""
    thought, text, one, two = message.content
    assert (thought.type, thought.thinking, thought.signature) == ("thinking", "Hm.", signature), thought
    assert text.text == "Hi there", text
    assert (one.type, one.id, one.name, one.input) == ("tool_use", "t1", "look", {"at": 1}), one
    assert (two.id, two.input) == ("t2", {}), two
    assert message.stop_reason == "tool_use" and message.usage.cache_read_input_tokens == 3, message


first = client.messages.create(**ask, tools=tools, thinking=thinking)
check_rich(first)
results = [{"type": "tool_result", "tool_use_id": id, "content": "seen"} for id in ("t1", "t2")]
turns = [*messages, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
second = client.messages.create(**{**ask, "messages": turns}, tools=tools, thinking=thinking)
assert second.content[0].text == "You said: żółw", second

with client.messages.stream(**ask, tools=tools, thinking=thinking) as stream:
    ended = [event.content_block.type for event in stream if event.type == "content_block_stop"]
    check_rich(stream.get_final_message())
assert ended == ["thinking", "text", "tool_use", "tool_use"], ended

beta = client.beta.messages.create(**ask, betas=["a-beta-of-tomorrow"])
assert beta.content[0].text == "You said: żółw", beta

counted = client.messages.count_tokens(model=model, messages=messages, tools=tools)
assert 0 < counted.input_tokens < 200, counted


def refused(expected, call, kind, code, words=""):
    """Checks that a call fails as this error of the SDK's."""
    try:
        call()
    except anthropic.APIStatusError as error:
        assert type(error) is expected, repr(error)
        assert error.type == kind, error.body
        assert error.body["error"]["weir_code"] == code, error.body
        assert words in error.api_message, error.api_message
        assert error.request_id and error.body["request_id"] == error.request_id, error.body
        return error
    raise AssertionError(f"{code} was expected")


def say(**fields):
    return lambda: client.messages.create(**{**ask, **fields})


refused(anthropic.NotFoundError, say(model="none"), "not_found_error", "UNKNOWN_MODEL", "model: none")
refused(anthropic.NotFoundError, lambda: client.models.retrieve("none"), "not_found_error", "UNKNOWN_MODEL")
refused(anthropic.BadRequestError, say(max_tokens=0), "invalid_request_error", "INVALID_REQUEST", "max_tokens")
long = say(model="small", max_tokens=10, messages=[{"role": "user", "content": "word " * 100}])
refused(anthropic.BadRequestError, long, "invalid_request_error", "CONTEXT_LENGTH_EXCEEDED", "prompt is too long")
costly = say(model="costly", max_tokens=10_000)
refused(anthropic.RateLimitError, costly, "billing_error", "QUOTA_EXCEEDED", "credit balance is too low")
refused(anthropic.OverloadedError, say(), "overloaded_error", "UPSTREAM_UNAVAILABLE")
stranger = anthropic.Anthropic(base_url=base_url, api_key="inf_wrong", max_retries=0)
wrong_key = lambda: stranger.messages.create(**ask)
refused(anthropic.AuthenticationError, wrong_key, "authentication_error", "UNAUTHENTICATED")
misplaced = anthropic.Anthropic(base_url=base_url + "/v1", api_key=api_key, max_retries=0)
try:
    misplaced.messages.create(**ask)
    raise AssertionError("there is something under /v1/v1")
except anthropic.NotFoundError as error:
    assert "/v1/messages" in error.message, error

seen = []
try:
    with client.messages.stream(**ask) as stream:
        seen.extend(stream.text_stream)
    raise AssertionError("half an answer was taken for a whole one")
except anthropic.APIStatusError as error:
    assert seen == ["So"] and error.type == "overloaded_error", (seen, error)

print(model, "all as expected")
