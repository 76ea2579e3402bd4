"""What Schemathesis cannot know: how a body looks that is no JSON, and that HTTP has unknown headers ignored."""

import schemathesis
from hypothesis import strategies

schemathesis.openapi.media_type("application/wasm", strategies.binary(max_size=64).map(lambda rest: b"\0asm" + rest))


@schemathesis.hook
def filter_case(context, case):
    """A header that nobody knows is no wrong data."""
    return "x-schemathesis-unknown-property" not in (case.headers or {})
