// Uses weir through OpenAI's JavaScript SDK. Arguments: origin, API key, model, `chat` or `responses`.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const [origin, apiKey, model, api] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${origin}/v1`, apiKey, maxRetries: 0 });
const parameters = { type: "object", properties: { at: { type: "integer" } }, required: ["at"], additionalProperties: false };
const picture = "data:image/png;base64,iVBORw0KGgo=";
const Answer = z.object({ answer: z.number() });

async function chat() {
  const messages = [{ role: "user", content: "Hello" }];
  const tools = [{ type: "function", function: { name: "look", parameters } }];
  const whole = await client.chat.completions.create({ model, messages });
  assert.equal(whole.choices[0].message.content, "Hello there");
  assert.deepEqual([whole.usage.prompt_tokens, whole.usage.completion_tokens], [12, 7]);

  const stream = client.chat.completions.stream({ model, messages });
  let pieces = "";
  for await (const chunk of stream) pieces += chunk.choices[0]?.delta?.content ?? "";
  assert.equal(pieces, "Hello there");
  assert.equal((await stream.finalChatCompletion()).choices[0].finish_reason, "stop");

  const asked = (await client.chat.completions.create({ model, messages, tools })).choices[0].message;
  const [call] = asked.tool_calls;
  assert.deepEqual([call.function.name, JSON.parse(call.function.arguments)], ["look", { at: 1 }]);
  const seen = { role: "tool", tool_call_id: call.id, content: "seen" };
  const told = await client.chat.completions.create({ model, messages: [...messages, asked, seen], tools });
  assert.equal(told.choices[0].message.content, "Hello there");

  const parallel = await client.chat.completions.stream({ model, messages, tools }).finalChatCompletion();
  const calls = parallel.choices[0].message.tool_calls;
  assert.deepEqual(calls.map((call) => JSON.parse(call.function.arguments)), [{ at: 1 }, {}]);

  const content = [{ type: "text", text: "What is it?" }, { type: "image_url", image_url: { url: picture } }];
  const looked = await client.chat.completions.create({ model, messages: [{ role: "user", content }] });
  assert.equal(looked.choices[0].message.content, "Hello there");

  const parsed = await client.chat.completions.parse({ model, messages, response_format: zodResponseFormat(Answer, "answer") });
  assert.deepEqual(parsed.choices[0].message.parsed, { answer: 42 });
  return (fields, at = client) => at.chat.completions.create({ model, messages, ...fields });
}

async function responses() {
  const tools = [{ type: "function", name: "look", parameters, strict: true }];
  const whole = await client.responses.create({ model, input: "Hello" });
  assert.equal(whole.output_text, "Hello there");
  assert.deepEqual([whole.usage.input_tokens, whole.usage.output_tokens], [12, 7]);

  const stream = client.responses.stream({ model, input: "Hello" });
  let pieces = "";
  for await (const event of stream) if (event.type === "response.output_text.delta") pieces += event.delta;
  assert.equal(pieces, "Hello there");
  assert.equal((await stream.finalResponse()).status, "completed");

  const input = [{ role: "user", content: "Hello" }];
  const asked = await client.responses.create({ model, input, tools, store: false });
  const call = asked.output.find((item) => item.type === "function_call");
  assert.deepEqual([call.name, JSON.parse(call.arguments)], ["look", { at: 1 }]);
  const seen = { type: "function_call_output", call_id: call.call_id, output: "seen" };
  const told = await client.responses.create({ model, input: [...input, ...asked.output, seen], tools, store: false });
  assert.equal(told.output_text, "Hello there");

  const parallel = await client.responses.stream({ model, input, tools }).finalResponse();
  const calls = parallel.output.filter((item) => item.type === "function_call");
  assert.deepEqual(calls.map((call) => JSON.parse(call.arguments)), [{ at: 1 }, {}]);

  const content = [{ type: "input_text", text: "What is it?" }, { type: "input_image", image_url: picture, detail: "auto" }];
  const looked = await client.responses.create({ model, input: [{ role: "user", content }] });
  assert.equal(looked.output_text, "Hello there");

  const parsed = await client.responses.parse({ model, input: "Hello", text: { format: zodTextFormat(Answer, "answer") } });
  assert.deepEqual(parsed.output_parsed, { answer: 42 });
  return (fields, at = client) => at.responses.create({ model, input: "Hello", ...fields });
}

const say = await { chat, responses }[api]();
await assert.rejects(say({}), (error) => error instanceof OpenAI.InternalServerError && error.status === 503);
await assert.rejects(say({ model: "none" }), (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
const says = (error) => error instanceof OpenAI.BadRequestError && error.message.includes("must be from 0 to 1");
await assert.rejects(say({ top_p: 2 }), says);
const stranger = new OpenAI({ baseURL: `${origin}/v1`, apiKey: "inf_wrong", maxRetries: 0 });
await assert.rejects(say({}, stranger), (error) => error instanceof OpenAI.AuthenticationError && error.code === "invalid_api_key");
console.log("all as expected");
