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

// Kinds of content that no filter can read: their bytes stay with the gateway.
const UNREADABLE = ["image", "audio", "file"];

// Every text of a request, also of kinds that this code does not know. A text that is JSON comes with the texts within it, in
// which letters may be escaped.
function* texts(value) {
  if (typeof value === "string") {
    yield value;
    if (/^\s*["[{]/.test(value)) {
      let inner = null;
      try {
        inner = JSON.parse(value);
      } catch {
        // It is no JSON.
      }
      if (inner !== null) yield* texts(inner);
    }
  } else if (value !== null && typeof value === "object") {
    if (UNREADABLE.includes(value.tag) && typeof value.val === "object" && value.val.source !== undefined) {
      throw { why: `has content of the kind ${value.tag}, which the filter cannot read`, param: null };
    }
    for (const [name, inner] of Object.entries(value)) {
      yield name;
      yield* texts(inner);
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

// Version 1 of the walk reads all texts of a request; see wit/weir.wit.
export const filterWalk = {
  version() {
    return 1;
  },
};

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
    const { tag, val } = request.task;
    if (tag === "image" && (val.inputs.length > 0 || val.mask)) {
      throw { why: "has an image, which the filter cannot read", param: null };
    }
    for (const text of texts(val)) {
      if (mask(text, words, true).masked !== text) throw { why: "has a code name in it", param: null };
    }
    return { change: null, upstreams: [], annotations: [], answer: new Answer(words) };
  },
};
