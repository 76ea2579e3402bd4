// Keeps the code names of Acme's projects in the house: a request with one in it is refused; an answer has asterisks in its
// place.
//
// Names are those of wit/weir.wit in camelCase; a variant is { tag, val }, an option a value or null. What a function's
// result has as its error is thrown.

const WORDS = "bluebird,nightjar";

function list(words) {
  return words.toLowerCase().split(",").map((word) => word.trim()).filter((word) => word !== "");
}

// Configurations travel as bytes, and QuickJS has neither TextEncoder nor TextDecoder.
function bytesOf(text) {
  const bytes = [];
  for (const [unit] of encodeURIComponent(text).matchAll(/%..|[^%]/g)) {
    bytes.push(unit.length === 3 ? parseInt(unit.slice(1), 16) : unit.charCodeAt(0));
  }
  return new Uint8Array(bytes);
}

function textOf(bytes) {
  let escaped = "";
  for (const byte of bytes) escaped += "%" + byte.toString(16).padStart(2, "0");
  return decodeURIComponent(escaped);
}

// A text with as many asterisks in place of each code name, and what of it may yet become one.
function mask(text, words, isEnd) {
  const longest = Math.max(...words.map((word) => word.length));
  let masked = "";
  let at = 0;
  while (at < text.length) {
    const rest = text.slice(at, at + longest).toLowerCase();
    const word = words.find((word) => rest.startsWith(word));
    if (word !== undefined) {
      masked += "*".repeat([...word].length);
      at += word.length;
    } else if (!isEnd && words.some((word) => word.startsWith(rest))) {
      break;
    } else {
      masked += text[at];
      at += 1;
    }
  }
  return { masked, held: text.slice(at) };
}

// Every text that the upstream's model is to read.
function* texts({ tag, val }) {
  if (tag === "image") {
    yield val.prompt;
    return;
  }
  for (const { parts } of val.messages) {
    for (const { content } of parts) {
      if (content.tag === "text" || content.tag === "refusal") yield content.val;
      if (content.tag !== "tool-result") continue;
      for (const result of content.val.content) if (result.tag === "text") yield result.val;
    }
  }
}

class Answer {
  held = new Map(); // Of each open block of text, what could still become a code name.

  constructor(words) {
    this.words = words;
  }

  events(events) {
    const out = [];
    for (const event of events) this.event(event, out);
    return { tag: "replace", val: out };
  }

  event(event, out) {
    const { tag, val } = event;
    const say = (index, text) => {
      if (text !== "") out.push({ tag: "fragment", val: { index, text } });
    };
    // A call's arguments are left as they are: they go to the client's own tools.
    if (tag === "block-start" && val.block.tag !== "tool-call") this.held.set(val.index, "");
    if (tag === "fragment" && this.held.has(val.index)) {
      const { masked, held } = mask(this.held.get(val.index) + val.text, this.words, false);
      this.held.set(val.index, held);
      say(val.index, masked);
      return;
    }
    if (tag === "block-end" && this.held.has(val)) {
      say(val, mask(this.held.get(val), this.words, true).masked);
      this.held.delete(val);
    }
    // They say the text again.
    if (tag === "logprobs") return;
    if (tag === "citation") {
      const masked = (text) => (text === null || text === undefined ? null : mask(text, this.words, true).masked);
      const citation = { ...val, title: masked(val.title), citedText: masked(val.citedText), json: null };
      out.push({ tag, val: citation });
      return;
    }
    out.push(event);
  }

  // Nothing of what was shown has come to the client.
  restart() {
    this.held.clear();
  }
}

export const filter = {
  Answer,

  describe() {
    return { name: "acme", version: "0.1.0", options: ["words"] };
  },

  // The host refuses options of any other name.
  configure(options) {
    const words = list(options[0]?.[1] ?? WORDS);
    if (words.length === 0) throw { name: "words", why: "must be words, with commas between them" };
    return bytesOf(words.join(","));
  },

  screen(request, configuration) {
    const words = list(textOf(configuration));
    for (const text of texts(request.task)) {
      if (mask(text, words, true).masked !== text) throw { why: "has a code name in it", param: null };
    }
    return { change: null, upstreams: [], annotations: [], answer: new Answer(words) };
  },
};
