"""Uses weir through OpenAI's SDK as a newcomer would. Arguments: base_url api_key model."""

import sys

import openai

base_url, api_key, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=api_key)
messages = [{"role": "user", "content": "żółw"}]

assert model in [item.id for item in client.models.list()], "the model is listed"
assert client.models.retrieve(model).id == model

answer = client.chat.completions.create(model=model, messages=messages)
assert answer.choices[0].message.content == "You said: żółw", answer
assert answer.choices[0].finish_reason == "stop"
assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens

pieces = []
for chunk in client.chat.completions.create(model=model, messages=messages, stream=True):
    pieces.append(chunk.choices[0].delta.content or "")
    last = chunk
assert "".join(pieces) == "You said: żółw", pieces
assert len(pieces) > 2, "it came in pieces"
assert last.choices[0].finish_reason == "stop" and last.usage.completion_tokens > 0

try:
    client.chat.completions.create(model="none", messages=messages)
    raise AssertionError("an unknown model was served")
except openai.NotFoundError as error:
    assert error.code == "model_not_found" and error.param == "model", error
    assert "`none`" in error.message and error.body["weir_code"] == "UNKNOWN_MODEL", error

try:
    client.models.retrieve("none")
    raise AssertionError("an unknown model was found")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error

try:
    client.chat.completions.create(model=model, messages=messages, max_tokens=10, extra_body={"made_up": 1})
    raise AssertionError("an unknown field was taken")
except openai.BadRequestError as error:
    assert error.code == "unsupported_parameter" and error.param == "made_up", error

once = client.with_options(max_retries=5)
try:
    once.chat.completions.create(model="costly", messages=messages)
    raise AssertionError("what nobody can pay was served")
except openai.RateLimitError as error:
    assert error.code == error.type == "insufficient_quota", error

try:
    client.chat.completions.create(model="small", messages=[{"role": "user", "content": "word " * 100}])
    raise AssertionError("more than the model takes was served")
except openai.BadRequestError as error:
    assert error.code == "context_length_exceeded", error
    assert "This model's maximum context length is 100 tokens" in error.message, error

try:
    client.with_options(base_url=base_url.removesuffix("/v1")).chat.completions.create(model=model, messages=messages)
    raise AssertionError("there is something without /v1")
except openai.NotFoundError as error:
    assert "/v1/chat/completions" in error.message, error

# Fields that SDKs and frameworks send although they change nothing, and labels.
answer = client.chat.completions.create(
    model=model,
    messages=messages,
    store=False,
    service_tier="auto",
    metadata={"a": "b"},
    logprobs=False,
    top_logprobs=0,
)
assert answer.choices[0].message.content == "You said: żółw", answer

try:
    openai.OpenAI(base_url=base_url, api_key="inf_wrong").models.list()
    raise AssertionError("a wrong key was accepted")
except openai.AuthenticationError as error:
    assert error.code == "invalid_api_key", error

print(model, "all as expected")
