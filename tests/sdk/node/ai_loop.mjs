// Runs twenty turns of tools through streams of Vercel's AI SDK. Arguments: origin, API key, model, `chat`, `responses` or `messages`.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const [origin, apiKey, id, api] = process.argv.slice(2);
const settings = { baseURL: `${origin}/v1`, apiKey };
const openai = createOpenAI(settings);
const model = { chat: openai.chat, responses: openai, messages: createAnthropic(settings) }[api](id);

const seen = [];
const look = tool({
  inputSchema: z.object({ at: z.number().optional() }),
  execute: async (input) => (seen.push(input), "seen"),
});
const errors = [];
const loop = streamText({
  model,
  maxRetries: 0,
  maxOutputTokens: 2048,
  system: "Be brief.",
  prompt: "Look around.",
  tools: { look },
  stopWhen: isStepCount(30),
  onError: ({ error }) => errors.push(error),
});
let text = "";
for await (const piece of loop.textStream) text += piece;
assert.deepEqual(errors, []);
assert.ok(text.endsWith("Hello there"), text);
assert.equal(seen.length, 40);
console.log("all as expected");
