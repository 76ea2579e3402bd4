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
except openai.BadRequestError as error:
    assert error.code == "UNKNOWN_MODEL" and error.param == "model", error

try:
    openai.OpenAI(base_url=base_url, api_key="inf_wrong").models.list()
    raise AssertionError("a wrong key was accepted")
except openai.AuthenticationError as error:
    assert error.code == "UNAUTHENTICATED", error

print(model, "all as expected")
