// Uses weir through Anthropic's JavaScript SDK. Arguments: origin, API key, model.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";

const [origin, apiKey, model] = process.argv.slice(2);
const client = new Anthropic({ baseURL: origin, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "Hello" }];
const ask = { model, max_tokens: 1024, messages };
const tools = [{ name: "look", input_schema: { type: "object", properties: { at: { type: "integer" } } } }];

const whole = await client.messages.create(ask);
assert.deepEqual(whole.content.map((block) => block.text), ["Hello there"]);
assert.deepEqual([whole.usage.input_tokens, whole.usage.output_tokens], [12, 7]);

let pieces = "";
const stream = client.messages.stream(ask).on("text", (text) => (pieces += text));
assert.equal((await stream.finalMessage()).stop_reason, "end_turn");
assert.equal(pieces, "Hello there");

const asked = await client.messages.create({ ...ask, tools });
const call = asked.content.find((block) => block.type === "tool_use");
assert.deepEqual([call.name, call.input], ["look", { at: 1 }]);
const seen = { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "seen" }] };
const turns = [...messages, { role: "assistant", content: asked.content }, seen];
const told = await client.messages.create({ ...ask, messages: turns, tools });
assert.equal(told.content[0].text, "Hello there");

const parallel = await client.messages.stream({ ...ask, tools }).finalMessage();
const calls = parallel.content.filter((block) => block.type === "tool_use");
assert.deepEqual(calls.map((call) => call.input), [{ at: 1 }, {}]);

const source = { type: "base64", media_type: "image/png", data: "iVBORw0KGgo=" };
const content = [{ type: "text", text: "What is it?" }, { type: "image", source }];
const looked = await client.messages.create({ ...ask, messages: [{ role: "user", content }] });
assert.equal(looked.content[0].text, "Hello there");

const format = zodOutputFormat(z.object({ answer: z.number() }));
const parsed = await client.messages.parse({ ...ask, output_config: { format } });
assert.deepEqual(parsed.parsed_output, { answer: 42 });

const say = (fields, at = client) => at.messages.create({ ...ask, ...fields });
await assert.rejects(say({}), (error) => error instanceof Anthropic.InternalServerError && error.status === 529);
await assert.rejects(say({ model: "none" }), (error) => error instanceof Anthropic.NotFoundError);
const says = (error) => error instanceof Anthropic.BadRequestError && error.message.includes("must be from 0 to 1");
await assert.rejects(say({ top_p: 2 }), says);
const stranger = new Anthropic({ baseURL: origin, apiKey: "inf_wrong", maxRetries: 0 });
await assert.rejects(say({}, stranger), (error) => error instanceof Anthropic.AuthenticationError);
const counted = await client.messages.countTokens({ model, messages });
assert.ok(counted.input_tokens > 0);
console.log("all as expected");
