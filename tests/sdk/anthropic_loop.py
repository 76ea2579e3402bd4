"""Runs twenty turns of tools by Anthropic's runner; one result is an image. Arguments: base_url api_key model."""

import sys

import anthropic
from anthropic import beta_tool

base_url, api_key, model = sys.argv[1:]
client = anthropic.Anthropic(base_url=base_url, api_key=api_key, max_retries=0)
seen = []


@beta_tool
def look(at: int = 0):
    """Looks.

    Args:
        at: The place.
    """
    seen.append(at)
    if len(seen) != 25:
        return "seen"
    picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    return [{"type": "text", "text": "seen"}, {"type": "image", "source": picture}]


runner = client.beta.messages.tool_runner(
    model=model,
    max_tokens=2048,
    tools=[look],
    messages=[{"role": "user", "content": "Look around."}],
)
turns = list(runner)
assert [block.text for block in turns[-1].content] == ["Hello there"], turns[-1]
assert len(turns) == 21 and seen == [1, 0] * 20, (len(turns), seen)
print(model, "after", len(turns), "turns, all as expected")
