"""Orders documents through Cohere's SDK. Arguments: base_url api_key model."""

import sys

import cohere

base_url, api_key, model = sys.argv[1:]
client = cohere.ClientV2(api_key=api_key, base_url=base_url)
documents = ["cats", "A weir is small.", "a small cat"]

answer = client.rerank(model=model, query="small weir", documents=documents, top_n=2)
assert [result.index for result in answer.results] == [1, 2], answer
assert answer.results[0].relevance_score == 1, answer
assert answer.id, answer

try:
    client.rerank(model=model, query="x", documents=[])
    raise AssertionError("an empty list was taken")
except cohere.BadRequestError as error:
    assert error.body["error"]["param"] == "documents", error

print("all as expected")
