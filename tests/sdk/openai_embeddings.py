"""Makes vectors through OpenAI's SDK. Arguments: base_url api_key model."""

import math
import sys

import openai

base_url, api_key, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=api_key)
texts = ["a small weir", "the weir, small", "cats"]

# Without `encoding_format`, the SDK asks for base64, and decodes it.
answer = client.embeddings.create(model=model, input=texts, dimensions=256)
assert answer.object == "list" and answer.model == model, answer
assert [item.index for item in answer.data] == [0, 1, 2]
vectors = [item.embedding for item in answer.data]
assert all(len(vector) == 256 for vector in vectors)
assert math.isclose(sum(number * number for number in vectors[0]), 1, rel_tol=1e-5)
assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0, answer.usage

floats = client.embeddings.create(model=model, input=texts, dimensions=256, encoding_format="float")
for one, other in zip(vectors, floats.data):
    assert all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(one, other.embedding))

# LangChain sends tokens.
assert len(client.embeddings.create(model=model, input=[[1, 2], [3]]).data) == 2

for wrong, param in [({"input": ""}, "input"), ({"input": "x", "dimensions": 5000}, "dimensions")]:
    try:
        client.embeddings.create(model=model, **wrong)
        raise AssertionError("a wrong field was taken")
    except openai.BadRequestError as error:
        assert error.param == param, error

print("all as expected")
