// Uses weir through Google's JavaScript SDK. Arguments: origin, API key, model.
import assert from "node:assert/strict";
import { ApiError, FunctionCallingConfigMode, GoogleGenAI } from "@google/genai";

const [origin, apiKey, model] = process.argv.slice(2);
const connect = (apiKey) => new GoogleGenAI({ apiKey, httpOptions: { baseUrl: origin } });
const client = connect(apiKey);
const contents = "Hello";
const ask = (fields) => client.models.generateContent({ model, contents, ...fields });
const parametersJsonSchema = { type: "object", properties: { at: { type: "integer" } } };
const tools = [{ functionDeclarations: [{ name: "look", parametersJsonSchema }] }];

const whole = await ask({});
assert.equal(whole.text, "Hello there");
const { promptTokenCount, candidatesTokenCount, totalTokenCount } = whole.usageMetadata;
assert.deepEqual([promptTokenCount, candidatesTokenCount, totalTokenCount], [12, 7, 19]);

let [pieces, last] = ["", null];
for await (const chunk of await client.models.generateContentStream({ model, contents })) {
  pieces += chunk.text ?? "";
  last = chunk;
}
assert.equal(pieces, "Hello there");
assert.equal(last.candidates[0].finishReason, "STOP");
assert.equal(last.usageMetadata.totalTokenCount, 19);

const mode = FunctionCallingConfigMode.AUTO;
const config = { tools, toolConfig: { functionCallingConfig: { mode } } };
const asked = await ask({ config });
const [call] = asked.functionCalls;
assert.deepEqual([call.name, call.args], ["look", { at: 1 }]);
const seen = { functionResponse: { id: call.id, name: call.name, response: { output: "seen" } } };
const turns = [{ role: "user", parts: [{ text: "Hello" }] }, asked.candidates[0].content, { role: "user", parts: [seen] }];
assert.equal((await ask({ contents: turns, config })).text, "Hello there");

const calls = [];
for await (const chunk of await client.models.generateContentStream({ model, contents, config })) calls.push(...(chunk.functionCalls ?? []));
assert.deepEqual(calls.map((call) => call.args ?? {}), [{ at: 1 }, {}]);

const picture = { inlineData: { mimeType: "image/png", data: "iVBORw0KGgo=" } };
assert.equal((await ask({ contents: ["What is it?", picture] })).text, "Hello there");

const schema = { type: "object", properties: { answer: { type: "integer" } }, required: ["answer"] };
const parsed = await ask({ config: { responseMimeType: "application/json", responseJsonSchema: schema } });
assert.deepEqual(JSON.parse(parsed.text), { answer: 42 });

const fails = (status, word) => (error) => error instanceof ApiError && error.status === status && error.message.includes(word);
await assert.rejects(ask({}), fails(503, "UNAVAILABLE"));
await assert.rejects(ask({ model: "none" }), fails(404, "NOT_FOUND"));
await assert.rejects(ask({ config: { topP: 2 } }), fails(400, "must be from 0 to 1"));
const stranger = connect("inf_wrong").models.generateContent({ model, contents });
await assert.rejects(stranger, fails(401, "UNAUTHENTICATED"));
assert.ok((await client.models.countTokens({ model, contents })).totalTokens > 0);
console.log("all as expected");
