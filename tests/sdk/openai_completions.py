"""Completes prompts through OpenAI's SDK, as editors do. Arguments: base_url api_key model."""

import sys

import openai

base_url, api_key, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=api_key)
filled = "You said: def f(), before: return 1"

answer = client.completions.create(model=model, prompt="def f()", suffix="return 1", max_tokens=50, stop=["\n\n"])
assert answer.object == "text_completion" and answer.model == model, answer
assert answer.choices[0].text == filled and answer.choices[0].finish_reason == "stop", answer
assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens

pieces = []
stream = client.completions.create(
    model=model, prompt="def f()", suffix="return 1", stream=True, stream_options={"include_usage": True}
)
for chunk in stream:
    pieces += [choice.text for choice in chunk.choices]
    last = chunk
assert "".join(pieces) == filled, pieces
assert len(pieces) > 2, "it came in pieces"
assert not last.choices and last.usage.completion_tokens > 0, last

answer = client.completions.create(model=model, prompt="one two three four five", max_tokens=2)
assert answer.choices[0].finish_reason == "length", answer

try:
    client.completions.create(model=model, prompt="x", logprobs=1)
    raise AssertionError("an unsupported field was taken")
except openai.BadRequestError as error:
    assert error.param == "logprobs", error

try:
    client.completions.create(model="none", prompt="x")
    raise AssertionError("an unknown model was served")
except openai.NotFoundError as error:
    assert error.code == "model_not_found" and error.param == "model", error

print("all as expected")
