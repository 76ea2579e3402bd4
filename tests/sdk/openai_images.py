"""Makes and edits images through OpenAI's SDK. Arguments: base_url api_key model."""

import base64
import io
import sys

import openai

base_url, api_key, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
PNG = b"\x89PNG\r\n\x1a\n"

answer = client.images.generate(model=model, prompt="a cat", n=2, size="1024x1024", user="u-1")
assert isinstance(answer.created, int), answer
assert len(answer.data) == 2, answer
for image in answer.data:
    assert base64.b64decode(image.b64_json).startswith(PNG), answer
assert answer.output_format == "png", answer
assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0, answer

first = base64.b64decode(answer.data[0].b64_json)
picture = io.BytesIO(first)
picture.name = "picture.png"
for given in [picture, [("one.png", first), ("two.png", first, "image/png")], first]:
    edited = client.images.edit(model=model, image=given, mask=("mask.png", first), prompt="make it blue")
    assert base64.b64decode(edited.data[0].b64_json).startswith(PNG), edited
assert edited.usage.input_tokens_details.image_tokens > 0, edited

events = list(client.images.generate(model=model, prompt="a cat", stream=True, partial_images=1))
assert events[-1].type == "image_generation.completed", events
assert base64.b64decode(events[-1].b64_json).startswith(PNG), events
assert events[-1].usage.total_tokens > 0, events

try:
    client.images.generate(model=model, prompt="/refuse")
    raise AssertionError("what is refused was made")
except openai.BadRequestError as error:
    assert error.code == "moderation_blocked", error
    assert error.type == "image_generation_user_error", error

try:
    client.images.generate(model=model, prompt="a cat", n=11)
    raise AssertionError("more than ten were made")
except openai.BadRequestError as error:
    assert error.param == "n" and error.body["weir_code"] == "INVALID_REQUEST", error

try:
    client.images.generate(model="demo", prompt="a cat")
    raise AssertionError("a model of words made an image")
except openai.BadRequestError as error:
    assert error.body["weir_code"] == "MODEL_NOT_SUPPORTED", error

answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "a cat"}])
url = answer.choices[0].message.images[0]["image_url"]["url"]
assert base64.b64decode(url.removeprefix("data:image/png;base64,")).startswith(PNG), url

print(model, "all as expected")
