// The playground: it sends the form's request, shows the response and its cost, and writes the request as code.
"use strict";

const form = document.getElementById("playground");
const at = (id) => document.getElementById(id);

// Images as data URLs, in the order of the chosen files.
let images = [];
// The request under way.
let running = null;

/** Returns the request of the form, or null with a message beside the field that is wrong. */
const request = () => {
  const messages = [];
  if (at("system").value) messages.push({ role: "system", content: at("system").value });
  const text = at("prompt").value;
  const content = images.length === 0 ? text : [
    { type: "text", text },
    ...images.map((url) => ({ type: "image_url", image_url: { url } })),
  ];
  messages.push({ role: "user", content });
  const body = { model: at("model").value, messages };
  for (const [id, field] of [["temperature", "temperature"], ["limit", "max_tokens"]]) {
    const value = at(id).value.trim();
    // weir's own error names the field of a value that is no number.
    if (value) body[field] = Number.isNaN(Number(value)) ? value : Number(value);
  }
  const problem = at("tools-error");
  problem.hidden = true;
  const tools = at("tools").value.trim();
  if (tools) {
    try {
      body.tools = JSON.parse(tools);
    } catch (error) {
      problem.textContent = `This is not JSON: ${error.message}`;
      problem.hidden = false;
      return null;
    }
  }
  if (at("stream").checked) body.stream = true;
  return body;
};

/** Writes a JSON value as a Python literal. */
const python = (value, indent = "") => {
  const deeper = `${indent}    `;
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const [open, close, parts] = Array.isArray(value)
    ? ["[", "]", value.map((part) => python(part, deeper))]
    : ["{", "}", Object.entries(value).map(([key, part]) => `${JSON.stringify(key)}: ${python(part, deeper)}`)];
  if (parts.length === 0) return open + close;
  return `${open}\n${parts.map((part) => `${deeper}${part},\n`).join("")}${indent}${close}`;
};

const indented = (text) => text.replaceAll("\n", "\n  ");

const showCode = () => {
  const body = request();
  if (!body) return;
  const base = form.dataset.base;
  const json = JSON.stringify(body, null, 2);
  at("as-curl").textContent = [
    `curl ${base}/v1/chat/completions`,
    `  -H "Authorization: Bearer $WEIR_API_KEY"`,
    `  -H 'Content-Type: application/json'`,
    `  -d '${json.replaceAll("'", "'\\''")}'`,
  ].join(" \\\n");
  const fields = Object.entries(body).map(([name, value]) => `    ${name}=${python(value, "    ")},\n`).join("");
  const read = body.stream
    ? "for chunk in answer:\n    for choice in chunk.choices:\n        print(choice.delta.content or \"\", end=\"\")"
    : "print(answer.choices[0].message.content)";
  at("as-python").textContent =
    `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url="${base}/v1", api_key=os.environ["WEIR_API_KEY"])\n` +
    `answer = client.chat.completions.create(\n${fields})\n${read}`;
  const show = body.stream
    ? "for await (const chunk of answer) process.stdout.write(chunk.choices[0]?.delta.content ?? \"\");"
    : "console.log(answer.choices[0].message.content);";
  at("as-javascript").textContent =
    `import OpenAI from "openai";\n\nconst client = new OpenAI({\n  baseURL: "${base}/v1",\n` +
    `  apiKey: process.env.WEIR_API_KEY,\n});\n` +
    `const answer = await client.chat.completions.create(${json});\n${show}`;
};

const say = (text) => {
  at("said").textContent += text;
};

/** Shows a tool call of a complete response, or a piece of one. */
const sayCall = (call) => {
  if (call.function?.name) say(`\n→ ${call.function.name} `);
  say(call.function?.arguments ?? "");
};

const fail = (message) => {
  at("failure").textContent = message;
  at("failure").hidden = false;
};

const showCost = (usage) => {
  if (!usage) return;
  const input = usage.prompt_tokens ?? 0;
  const output = usage.completion_tokens ?? 0;
  const charged = usage.credits === undefined ? "" : `${usage.credits} credits: `;
  at("cost").textContent = `${charged}${input} input and ${output} output tokens.`;
  const rows = [...at("model").options]
    .filter((option) => option.value !== at("model").value)
    .map((option) => {
      const { input: dearIn, output: dearOut } = option.dataset;
      return [option.value, (input * Number(dearIn) + output * Number(dearOut)) / 1000];
    })
    .sort((one, other) => one[1] - other[1]);
  const body = document.querySelector("#comparison tbody");
  body.replaceChildren(...rows.map(([model, credits]) => {
    const row = document.createElement("tr");
    const name = document.createElement("th");
    name.scope = "row";
    name.textContent = model;
    const price = document.createElement("td");
    price.className = "number";
    price.textContent = String(Number(credits.toPrecision(3)));
    row.append(name, price);
    return row;
  }));
  at("comparison").hidden = rows.length === 0;
};

/** Shows an event of a stream; returns whether it was the last one. */
const showEvent = (event) => {
  const lines = event.split("\n");
  const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
  if (!data || data === "[DONE]") return data === "[DONE]";
  const chunk = JSON.parse(data);
  if (chunk.error) {
    fail(chunk.error.message);
    return true;
  }
  for (const choice of chunk.choices ?? []) {
    say(choice.delta?.content ?? choice.delta?.refusal ?? "");
    for (const call of choice.delta?.tool_calls ?? []) sayCall(call);
  }
  showCost(chunk.usage);
  return false;
};

const readStream = async (response) => {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let isWhole = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      isWhole = showEvent(text.slice(0, end)) || isWhole;
      text = text.slice(end + 2);
    }
  }
  if (!isWhole) fail("The connection broke before the response was complete.");
};

const send = async (body) => {
  const response = await fetch("/console/playground/chat", {
    method: "POST",
    headers: { "content-type": "application/json", "x-form-token": form.dataset.token },
    body: JSON.stringify(body),
    signal: running.signal,
  });
  // The session has ended: weir led to the sign-in page.
  if (response.redirected) {
    location.assign("/console/sign-in?next=/console/playground");
    return;
  }
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
  if (response.ok && isStream) {
    await readStream(response);
    return;
  }
  const answer = await response.json();
  if (!response.ok) {
    fail(answer.error?.message ?? `weir responded with status ${response.status}.`);
    return;
  }
  const message = answer.choices[0].message;
  say(message.content ?? message.refusal ?? "");
  for (const call of message.tool_calls ?? []) sayCall(call);
  showCost(answer.usage);
};

const showState = (isRunning) => {
  at("send").disabled = isRunning;
  at("stop").hidden = !isRunning;
};

if (form) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = request();
    if (!body || running) return;
    running = new AbortController();
    for (const id of ["failure", "comparison"]) at(id).hidden = true;
    for (const id of ["said", "cost"]) at(id).textContent = "";
    at("answer").hidden = false;
    showState(true);
    try {
      await send(body);
    } catch (error) {
      fail(error.name === "AbortError" ? "You stopped the request." : `The request failed: ${error.message}`);
    }
    running = null;
    showState(false);
  });
  at("stop").addEventListener("click", () => running?.abort());
  form.addEventListener("input", showCode);
  at("images").addEventListener("change", async () => {
    const read = (file) => new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    });
    images = await Promise.all([...at("images").files].map(read));
    showCode();
  });
  showCode();
}
