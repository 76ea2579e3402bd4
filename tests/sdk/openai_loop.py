"""Runs twenty turns of tools with another model from the tenth on: as an agent that keeps the answers as they come, cuts one of its
calls, shows an image, and compacts its history. Arguments: base_url api_key model other_model `chat` or `responses`."""

import sys

import openai

base_url, api_key, model, other, kind = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
schema = {"type": "object", "properties": {"at": {"type": "integer"}}}
summary = {"role": "user", "content": "So far, you looked around."}
turns = 0


def model_of_turn():
    return model if turns < 10 else other


def chat():
    """Chat Completions."""
    global turns
    tools = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": schema}}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Look around."}]
    while True:
        answer = client.chat.completions.create(
            model=model_of_turn(), messages=messages, tools=tools, max_tokens=2048, temperature=0.2
        )
        message = answer.choices[0].message
        if not message.tool_calls:
            return message.content
        turns += 1
        messages.append(message.model_dump(exclude_none=True))
        if turns == 5:
            # An output limit cuts arguments.
            messages[-1]["tool_calls"][0]["function"]["arguments"] = '{"at": '
        results = [{"role": "tool", "tool_call_id": call.id, "content": "seen"} for call in message.tool_calls]
        if turns == 7:
            # A user speaks before the second result.
            results.insert(1, {"role": "user", "content": "Go on."})
        messages += results
        if turns == 15:
            # A summary stands for the rest, also for the calls of the last results.
            messages = [messages[0], summary, *results]


def responses():
    """Responses, with the items of each answer."""
    global turns
    tools = [{"type": "function", "name": "look", "description": "Looks.", "parameters": schema}]
    items = [{"role": "user", "content": "Look around."}]
    while True:
        answer = client.responses.create(
            model=model_of_turn(), instructions="Be brief.", input=items, tools=tools, store=False, max_output_tokens=2048
        )
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return answer.output_text
        turns += 1
        items += [item.model_dump(exclude_none=True) for item in answer.output]
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": "seen"} for call in calls]
        if turns == 7:
            results.insert(1, {"role": "user", "content": "Go on."})
        if turns == 12:
            picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
            results[0]["output"] = [{"type": "input_text", "text": "seen"}, picture]
        items += results
        if turns == 15:
            items = [summary, *results]


said = {"chat": chat, "responses": responses}[kind]()
assert said == "Hello there" and turns == 20, (said, turns)
print(model, "and", other, "after", turns, "turns, all as expected")
