//! The contract's events as the [misbehaving guest](crate::guests::misbehaving) takes them in a script.

use serde_json::{Value, json};

/// A text block begins.
pub fn start(index: u32) -> Value {
    block(index, &json!("Text"))
}

/// A block begins.
pub fn block(index: u32, block: &Value) -> Value {
    json!({ "BlockStart": { "index": index, "block": block } })
}

/// A block goes on.
pub fn text(index: u32, text: &str) -> Value {
    json!({ "Fragment": { "index": index, "text": text } })
}

/// A block ends.
pub fn end(index: u32) -> Value {
    json!({ "BlockEnd": index })
}

/// A block of a kind that the contract has not: it begins and ends with this.
pub fn opaque(index: u32, kind: &str, json: &str) -> Value {
    json!({ "Opaque": { "index": index, "block": { "kind": kind, "json": json } } })
}

/// A source stands behind a stretch of a text block, or behind all of it so far.
pub fn citation(index: u32, source: &str, title: Option<&str>, span: Option<(u32, u32)>) -> Value {
    let span = span.map(|(start, end)| json!({ "start": start, "end": end }));
    json!({ "Citation": { "index": index, "source": source, "title": title, "span": span } })
}

/// The answer ends.
pub fn finish() -> Value {
    json!({ "Finish": "Stop" })
}

/// An answer of one text.
pub fn answer(says: &str) -> Value {
    json!([start(0), text(0, says), end(0), finish()])
}
