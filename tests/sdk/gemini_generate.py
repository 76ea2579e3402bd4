"""Uses weir through Google's SDK as a newcomer would. Arguments: base_url api_key model."""

import sys

from google import genai
from google.genai import errors, types

base_url, api_key, model = sys.argv[1:]
client = genai.Client(api_key=api_key, http_options={"base_url": base_url})
ask = {"model": model, "contents": "żółw"}

listed = [item.name for item in client.models.list(config={"page_size": 1})]
assert f"models/{model}" in listed, listed
found = client.models.get(model=model)
assert found.name == f"models/{model}" and found.input_token_limit > 0, found

answer = client.models.generate_content(**ask)
assert answer.text == "You said: żółw", answer
assert answer.candidates[0].finish_reason == types.FinishReason.STOP
assert answer.model_version == model and answer.response_id
usage = answer.usage_metadata
assert usage.total_token_count == usage.prompt_token_count + usage.candidates_token_count + (usage.thoughts_token_count or 0)

chunks = list(client.models.generate_content_stream(**ask))
assert "".join(chunk.text or "" for chunk in chunks) == "You said: żółw" and len(chunks) > 1, chunks
assert chunks[-1].usage_metadata.total_token_count > 0, chunks[-1]

look = types.FunctionDeclaration(
    name="look", description="Looks.", parameters=types.Schema(type="OBJECT", properties={"at": types.Schema(type="INTEGER")})
)
config = types.GenerateContentConfig(
    tools=[types.Tool(function_declarations=[look])],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    thinking_config=types.ThinkingConfig(thinking_budget=1024, include_thoughts=True),
    top_k=40,
    max_output_tokens=2048,
)


def result(call):
    return types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"result": "seen"}))


def check_rich(calls):
    """Two calls."""
    assert [(call.id, call.name, call.args) for call in calls] == [("t1", "look", {"at": 1}), ("t2", "look", {})], calls


first = client.models.generate_content(**ask, config=config)
check_rich(first.function_calls)
assert first.text == "Hi there", first
turns = [
    types.Content(role="user", parts=[types.Part(text="żółw")]),
    first.candidates[0].content,
    types.Content(role="user", parts=[result(call) for call in first.function_calls]),
]
second = client.models.generate_content(model=model, contents=turns, config=config)
assert second.text == "You said: żółw", second

# A chat keeps the parts of a stream apart, and sends them back.
chat = client.chats.create(model=model, config=config)
parts = [part for chunk in chat.send_message_stream("żółw") for part in chunk.candidates[0].content.parts]
calls = [part.function_call for part in parts if part.function_call]
check_rich(calls)
assert chat.send_message([result(call) for call in calls]).text == "You said: żółw"

counted = client.models.count_tokens(**ask)
assert 0 < counted.total_tokens < 200, counted

picture = types.Part.from_bytes(data=b"\xfb\xff\xfe\x89PNG", mime_type="image/png")
assert client.models.generate_content(model=model, contents=["żółw", picture]).text == "You said: żółw"


def failure(call):
    try:
        call()
    except errors.APIError as error:
        return error
    raise AssertionError("there is no error")


unknown = failure(lambda: client.models.generate_content(model="none", contents="x"))
assert (unknown.code, unknown.status) == (404, "NOT_FOUND") and isinstance(unknown, errors.ClientError), unknown
wrong = genai.Client(api_key="AIza-wrong", http_options={"base_url": base_url})
refused = failure(lambda: wrong.models.generate_content(**ask))
assert (refused.code, refused.status) == (401, "UNAUTHENTICATED"), refused
broken = failure(lambda: list(client.models.generate_content_stream(**ask)))
assert (broken.code, broken.status) == (503, "UNAVAILABLE") and isinstance(broken, errors.ServerError), broken

print("all as expected")
