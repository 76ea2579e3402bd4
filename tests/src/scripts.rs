//! The contract's events as the [misbehaving guest](crate::guests::misbehaving) takes them in a script.

use serde_json::{Value, json};

/// The beginning of a text block.
pub fn start(index: u32) -> Value {
    block(index, &json!("Text"))
}

/// The beginning of a block.
pub fn block(index: u32, block: &Value) -> Value {
    json!({ "BlockStart": { "index": index, "block": block } })
}

/// A fragment of a block.
pub fn text(index: u32, text: &str) -> Value {
    json!({ "Fragment": { "index": index, "text": text } })
}

/// The end of a block.
pub fn end(index: u32) -> Value {
    json!({ "BlockEnd": index })
}

/// A block of a kind outside the contract: it begins and ends with this JSON.
pub fn opaque(index: u32, kind: &str, json: &str) -> Value {
    json!({ "Opaque": { "index": index, "block": { "kind": kind, "json": json } } })
}

/// A source for a span of a text block, or for all of it so far.
pub fn citation(index: u32, source: &str, title: Option<&str>, span: Option<(u32, u32)>) -> Value {
    let span = span.map(|(start, end)| json!({ "start": start, "end": end }));
    json!({ "Citation": { "index": index, "source": source, "title": title, "span": span } })
}

/// The end of the response.
pub fn finish() -> Value {
    json!({ "Finish": "Stop" })
}

/// A response with one text.
pub fn answer(says: &str) -> Value {
    json!([start(0), text(0, says), end(0), finish()])
}
