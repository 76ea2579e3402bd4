// Looks customers up in Acme's CRM.
//
// Names are those of wit/weir.wit in camelCase; a variant is { tag, val }, an option a value or null. What a function's
// result has as its error is thrown.

import outbound from "weir:plugin/outbound@0.2.3";

// Texts travel as bytes, and QuickJS has no TextDecoder.
function utf8(bytes) {
  let escaped = "";
  for (const byte of bytes) escaped += "%" + byte.toString(16).padStart(2, "0");
  try {
    return decodeURIComponent(escaped);
  } catch {
    return "(no text)";
  }
}

export const tool = {
  describe() {
    return {
      name: "acme",
      version: "0.1.0",
      description: "Looks a customer up by number.",
      inputSchema: JSON.stringify({
        type: "object",
        properties: { number: { type: "integer", minimum: 1 } },
        required: ["number"],
      }),
    };
  },

  // The host has held the arguments to the schema.
  call(text, context) {
    const { number } = JSON.parse(text);
    let answer;
    try {
      answer = outbound.fetch({
        method: "get",
        url: `https://crm.example.com/v2/customers/${number}`,
        headers: [],
        body: null,
        // By its name, which the operator gave it: the host adds it.
        credential: context.credentials.includes("acme") ? "acme" : null,
      });
    } catch (error) {
      const { tag, val } = error.payload ?? error;
      throw { tag: "failed", val: `not reached: ${tag}${val ? ` (${val})` : ""}` };
    }
    if (answer.status !== 200) throw { tag: "failed", val: `HTTP ${answer.status}: ${utf8(answer.body)}` };
    return utf8(answer.body);
  },
};
