// Translates for Acme's text API: POST /generate with a prompt, and server-sent events back:
// {"text":"Hel"} for each piece, and {"end":"done","in":3,"out":2} at the end.
//
// Names are those of wit/weir.wit in camelCase; a variant is { tag, val }, an option a value or null. What a function's
// result has as its error is thrown.

const ADVISORY = ["user", "metadata", "prompt_cache_key", "safety_identifier", "service_tier"];
const MAX_ERROR_BYTES = 64 * 1024;

function failure(kind, text, more = {}) {
  return { kind, text, param: null, retryAfterMs: null, code: null, upstreamError: null, ...more };
}

// What cannot be said upstream is refused by its name, and never dropped.
function unsupported(what) {
  return failure("unsupported", what, { param: what });
}

// The failure that a status stands for.
function fromStatus({ status, headers }, body) {
  const kinds = { 401: "unauthorized", 403: "unauthorized", 404: "model-not-found", 429: "rate-limited" };
  const kind = kinds[status] ?? (status >= 400 && status < 500 ? "rejected" : status >= 500 ? "unavailable" : "malformed");
  const seconds = Number(headers.find(([name]) => name === "retry-after")?.[1] ?? NaN);
  const retryAfterMs = Number.isFinite(seconds) && seconds >= 0 ? Math.min(seconds * 1000, 3_600_000) : null;
  return failure(kind, utf8(body).slice(0, 1000) || `status ${status}`, { retryAfterMs });
}

// A character never ends in the middle of a line, however the stream is cut.
function utf8(bytes) {
  let escaped = "";
  for (const byte of bytes) escaped += "%" + byte.toString(16).padStart(2, "0");
  try {
    return decodeURIComponent(escaped);
  } catch {
    throw failure("malformed", "the answer is no UTF-8");
  }
}

function bytesOf(text) {
  const bytes = [];
  for (const [unit] of encodeURIComponent(text).matchAll(/%..|[^%]/g)) {
    bytes.push(unit.length === 3 ? parseInt(unit.slice(1), 16) : unit.charCodeAt(0));
  }
  return new Uint8Array(bytes);
}

function prompt(chat) {
  const set = {
    tools: chat.tools.length > 0,
    response_format: chat.responseFormat.tag !== "text",
    reasoning_effort: chat.reasoning.effort !== null,
    top_p: chat.topP !== null,
    top_k: chat.topK !== null,
    presence_penalty: chat.presencePenalty !== null,
    frequency_penalty: chat.frequencyPenalty !== null,
    seed: chat.seed !== null,
    stop: chat.stop.length > 0,
  };
  for (const [name, isSet] of Object.entries(set)) if (isSet) throw unsupported(name);
  for (const [name] of chat.extra) if (!ADVISORY.includes(name)) throw unsupported(name);
  const speakers = { system: "Instructions", user: "Question", assistant: "Answer", tool: "Answer" };
  let text = "";
  for (const message of chat.messages) {
    if (message.name !== null || message.extra.length > 0) throw unsupported("messages");
    for (const { content, extra } of message.parts) {
      if (content.tag !== "text" || extra.length > 0) throw unsupported("messages");
      text += `${speakers[message.role]}: ${content.val}\n`;
    }
  }
  return text;
}

class Exchange {
  refused = null; // A response that is no answer: its head, and what is kept of its body.
  kept = [];
  line = []; // What has come of a line.
  block = null; // Whether a text block is open.
  isFinished = false;

  static begin(request, configuration) {
    if (request.task.tag !== "chat") throw unsupported("image requests");
    const chat = request.task.val;
    const body = { model: chat.model, prompt: prompt(chat), max_tokens: chat.maxOutputTokens, tone: utf8(configuration) };
    if (chat.temperature !== null) body.temperature = chat.temperature;
    const step = {
      tag: "send",
      val: {
        method: "POST",
        path: "/generate",
        headers: [["content-type", "application/json"]],
        body: [{ tag: "bytes", val: bytesOf(JSON.stringify(body)) }],
      },
    };
    // What changes nothing about the answer is left out, and named.
    const ignored = chat.extra.map(([name]) => name);
    for (const { parts } of chat.messages) {
      if (parts.some(({ cache }) => cache !== null) && !ignored.includes("cache_control")) ignored.push("cache_control");
    }
    return { exchange: new Exchange(), step, ignored };
  }

  next() {
    return { tag: "done" };
  }

  head(head) {
    if (head.status !== 200) this.refused = head;
  }

  // Pieces come in any size, cut anywhere. What was read before something goes wrong is not lost.
  body(bytes) {
    const events = [];
    try {
      for (const byte of bytes) {
        if (this.refused !== null) {
          if (this.kept.length < MAX_ERROR_BYTES) this.kept.push(byte);
        } else if (byte === 0x0a) {
          const line = utf8(this.line).trim();
          this.line = [];
          if (line.startsWith("data:")) this.read(line.slice(5), events);
        } else {
          this.line.push(byte);
        }
      }
    } catch (error) {
      return { events, failure: error.kind ? error : failure("malformed", String(error)) };
    }
    return { events, failure: null };
  }

  read(data, events) {
    const { text, end, in: input, out: output } = JSON.parse(data);
    if (text !== undefined) {
      if (this.block === null) {
        this.block = 0;
        events.push({ tag: "block-start", val: { index: 0, block: { tag: "text" } } });
      }
      events.push({ tag: "fragment", val: { index: 0, text } });
    }
    if (end === undefined) return;
    if (this.block !== null) events.push({ tag: "block-end", val: 0 });
    const usage = {
      inputTokens: input ?? null,
      cacheReadTokens: null,
      cacheWriteShortTokens: null,
      cacheWriteLongTokens: null,
      outputTokens: output ?? null,
      reasoningTokens: null,
      images: null,
      other: [],
    };
    events.push({ tag: "usage", val: usage });
    const reasons = { done: { tag: "stop" }, limit: { tag: "length" } };
    events.push({ tag: "finish", val: reasons[end] ?? { tag: "other", val: end } });
    this.isFinished = true;
  }

  end() {
    if (this.refused !== null) return { events: [], failure: fromStatus(this.refused, this.kept) };
    if (!this.isFinished) return { events: [], failure: failure("malformed", "the stream ended before the answer did") };
    return { events: [], failure: null };
  }
}

export const adapter = {
  Exchange,

  describe() {
    return {
      name: "acme",
      version: "0.1.0",
      dialect: "acme",
      credential: { tag: "header", val: "x-acme-key" },
      capabilities: ["chat"],
      options: ["tone"],
      requestHeaders: ["content-type"],
      responseHeaders: [],
      pathPrefixes: ["/generate"],
    };
  },

  configure(options) {
    for (const [name, value] of options) {
      if (value !== "plain" && value !== "warm") throw { name, why: "must be plain or warm" };
    }
    return bytesOf(options[0]?.[1] ?? "plain");
  },
};
