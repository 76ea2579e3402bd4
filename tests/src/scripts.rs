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

/// The answer ends.
pub fn finish() -> Value {
    json!({ "Finish": "Stop" })
}

/// An answer of one text.
pub fn answer(says: &str) -> Value {
    json!([start(0), text(0, says), end(0), finish()])
}
