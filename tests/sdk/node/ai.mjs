// Uses weir through Vercel's AI SDK. Arguments: origin, API key, model, `chat`, `responses` or `messages`.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, Output, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const [origin, apiKey, id, api] = process.argv.slice(2);
const provider = (apiKey) => {
  const settings = { baseURL: `${origin}/v1`, apiKey };
  if (api === "messages") return createAnthropic(settings);
  const openai = createOpenAI(settings);
  return api === "chat" ? openai.chat : openai;
};
const model = provider(apiKey)(id);
const ask = { model, maxRetries: 0, maxOutputTokens: 1024 };
const parameters = z.object({ at: z.number().optional() });

const whole = await generateText({ ...ask, prompt: "Hello" });
assert.equal(whole.text, "Hello there");
assert.deepEqual([whole.usage.inputTokens, whole.usage.outputTokens], [12, 7]);

let pieces = "";
const stream = streamText({ ...ask, prompt: "Hello" });
for await (const piece of stream.textStream) pieces += piece;
assert.equal(pieces, "Hello there");
assert.equal(await stream.finishReason, "stop");

const seen = [];
const look = tool({ inputSchema: parameters, execute: async (input) => (seen.push(input), "seen") });
const told = await generateText({ ...ask, prompt: "Hello", tools: { look }, stopWhen: isStepCount(2) });
assert.deepEqual(seen, [{ at: 1 }]);
assert.equal(told.text, "Hello there");

const parallel = streamText({ ...ask, prompt: "Hello", tools: { look: tool({ inputSchema: parameters }) } });
assert.deepEqual((await parallel.toolCalls).map((call) => call.input), [{ at: 1 }, {}]);

const picture = Uint8Array.from(Buffer.from("iVBORw0KGgo=", "base64"));
const content = [{ type: "text", text: "What is it?" }, { type: "file", data: picture, mediaType: "image/png" }];
const looked = await generateText({ ...ask, messages: [{ role: "user", content }] });
assert.equal(looked.text, "Hello there");

const output = Output.object({ schema: z.object({ answer: z.number() }) });
const parsed = await generateText({ ...ask, prompt: "Hello", output });
assert.deepEqual(parsed.output, { answer: 42 });

const say = (model, fields) => generateText({ ...ask, prompt: "Hello", model, ...fields });
const overloaded = api === "messages" ? 529 : 503;
const fails = (status) => (error) => APICallError.isInstance(error) && error.statusCode === status;
await assert.rejects(say(model), fails(overloaded));
await assert.rejects(say(provider(apiKey)("none")), fails(404));
await assert.rejects(say(provider("inf_wrong")(id)), fails(401));
const says = (error) => fails(400)(error) && error.message.includes("must be from 0 to 1");
await assert.rejects(say(model, { topP: 2 }), says);
console.log("all as expected");
