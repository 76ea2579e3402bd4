"""Runs twenty turns of tools by the automatic calls of Google's SDK. Arguments: base_url api_key model."""

import sys

from google import genai
from google.genai import types

base_url, api_key, model = sys.argv[1:]
client = genai.Client(api_key=api_key, http_options=types.HttpOptions(base_url=base_url))
seen = []


def look(at: int = 0) -> str:
    """Looks at a place."""
    seen.append(at)
    return "seen"


config = types.GenerateContentConfig(
    tools=[look],
    max_output_tokens=2048,
    automatic_function_calling=types.AutomaticFunctionCallingConfig(maximum_remote_calls=30),
)
answer = client.models.generate_content(model=model, contents="Look around.", config=config)
assert answer.text == "Hello there", answer
assert seen == [1, 0] * 20, seen
print(model, "after", len(seen), "calls, all as expected")
