//! The blocks of a response, each from its start through its deltas to its end.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use weir_sdk::adapter::{Event, Failure};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, CallKind, Citation, Fragment, Opaque, ToolCallStart};
use weir_sdk::custom;

use super::unreadable;
use super::wire::{Delta, KnownBlock, Source};

/// Maximum size of a block whose kind the vocabulary lacks, in bytes.
const MAX_OPAQUE_BYTES: usize = 4 * 1024 * 1024;

/// An open block.
#[derive(Debug)]
pub(super) struct Open {
    /// Its number among the events; an opaque block gets its number at its end.
    index: u32,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Text,
    Thinking,
    /// A function is called with this input unless deltas write another.
    Call {
        input: String,
        has_deltas: bool,
    },
    /// Free text, which is extracted from a function's input once that is complete.
    CustomCall {
        input: String,
        has_deltas: bool,
    },
    Opaque(Unknown),
}

/// A block whose kind the vocabulary lacks, and the content of its deltas.
#[derive(Debug)]
struct Unknown {
    kind: String,
    json: String,
    input: String,
    /// Fields whose value a delta carries, such as a compaction's.
    content: Option<String>,
}

impl Open {
    pub(super) fn begin(
        raw: &RawValue,
        custom_tools: &[String],
        blocks: &mut Blocks,
        events: &mut Vec<Event>,
    ) -> Result<Self, Failure> {
        // The types of fields are known only for known blocks; an unknown block's may have any type.
        let kind = kind_of(raw)?;
        let known = || serde_json::from_str::<KnownBlock<'_>>(raw.get());
        let (index, body) = match kind.as_ref() {
            "text" => {
                let block = known().map_err(|error| unreadable(&error))?;
                let index = blocks.begin(Block::Text, events);
                say(index, block.text, events);
                for citation in block.citations.into_iter().flatten() {
                    cite(index, citation, events);
                }
                (index, Body::Text)
            }
            "thinking" => {
                let block = known().map_err(|error| unreadable(&error))?;
                let index = blocks.begin(Block::Reasoning, events);
                say(index, block.thinking, events);
                sign(index, block.signature, events);
                (index, Body::Thinking)
            }
            "redacted_thinking" => {
                let block = known().map_err(|error| unreadable(&error))?;
                let index = blocks.begin(Block::Reasoning, events);
                if let Some(text) = block.data.filter(|data| !data.is_empty()) {
                    events.push(Event::Sealed(Fragment { index, text }));
                }
                (index, Body::Thinking)
            }
            "tool_use" => {
                let block = known().map_err(|error| unreadable(&error))?;
                let Some(name) = block.name.filter(|name| !name.is_empty()) else {
                    return Err(Failure::malformed("a tool call without a name"));
                };
                let kind = custom::kind_of(custom_tools, &name);
                let id = block.id.unwrap_or_default();
                let input = block
                    .input
                    .map(RawValue::get)
                    .filter(|input| *input != "null");
                let input = input.unwrap_or("{}").to_owned();
                let index = blocks.begin(Block::ToolCall(ToolCallStart { id, name, kind }), events);
                let has_deltas = false;
                let body = match kind {
                    CallKind::Function => Body::Call { input, has_deltas },
                    CallKind::Custom => Body::CustomCall { input, has_deltas },
                };
                (index, body)
            }
            kind => {
                let unknown = Unknown {
                    kind: kind.to_owned(),
                    json: raw.get().to_owned(),
                    input: String::new(),
                    content: None,
                };
                (0, Body::Opaque(unknown))
            }
        };
        Ok(Self { index, body })
    }

    pub(super) fn add(&mut self, raw: &RawValue, events: &mut Vec<Event>) -> Result<(), Failure> {
        let index = self.index;
        if let Body::Opaque(unknown) = &mut self.body {
            return unknown.add(raw);
        }
        let delta: Delta<'_> =
            serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
        match (delta.kind.as_ref(), &mut self.body) {
            ("text_delta", Body::Text) => say(index, delta.text, events),
            ("citations_delta", Body::Text) => {
                if let Some(citation) = delta.citation {
                    cite(index, citation, events);
                }
            }
            ("thinking_delta", Body::Thinking) => say(index, delta.thinking, events),
            ("signature_delta", Body::Thinking) => sign(index, delta.signature, events),
            ("input_json_delta", Body::Call { has_deltas, .. }) => {
                // White space alone is no input, but may be part of one.
                let is_some = |piece: &String| *has_deltas || !piece.trim().is_empty();
                let piece = delta.partial_json.filter(is_some);
                *has_deltas |= piece.is_some();
                say(index, piece, events);
            }
            ("input_json_delta", Body::CustomCall { input, has_deltas }) => {
                let is_some = |piece: &String| *has_deltas || !piece.trim().is_empty();
                if let Some(piece) = delta.partial_json.filter(is_some) {
                    if !std::mem::replace(has_deltas, true) {
                        input.clear();
                    }
                    add_within_bounds(input, &piece)?;
                }
            }
            // Deltas of newer versions.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn end(self, blocks: &mut Blocks, events: &mut Vec<Event>) -> Result<(), Failure> {
        let index = self.index;
        match self.body {
            Body::Text | Body::Thinking => {}
            Body::Call { input, has_deltas } => {
                if !has_deltas {
                    say(index, Some(input), events);
                }
            }
            Body::CustomCall { input, .. } => say(index, Some(custom::input(input)), events),
            Body::Opaque(unknown) => {
                let block = unknown.into_block()?;
                blocks.opaque(block, events);
                return Ok(());
            }
        }
        events.push(Event::BlockEnd(index));
        Ok(())
    }
}

impl Unknown {
    fn add(&mut self, raw: &RawValue) -> Result<(), Failure> {
        #[derive(serde::Deserialize)]
        struct Added {
            partial_json: Option<String>,
            content: Option<String>,
        }
        let added: Added = serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
        if let Some(piece) = added.partial_json {
            add_within_bounds(&mut self.input, &piece)?;
        }
        if let Some(piece) = added.content {
            add_within_bounds(self.content.get_or_insert_default(), &piece)?;
        }
        Ok(())
    }

    /// Returns the block with the content of its deltas. Without deltas, it is unchanged.
    fn into_block(self) -> Result<Opaque, Failure> {
        let mut json = self.json;
        let content = self
            .content
            .map(|content| serde_json::json!(content).to_string());
        // A truncated input counts as none.
        let input = RawValue::from_string(self.input)
            .ok()
            .map(|raw| raw.get().to_owned());
        if content.is_some() || input.is_some() {
            let mut fields: BTreeMap<Cow<'_, str>, &RawValue> =
                serde_json::from_str(&json).map_err(|error| unreadable(&error))?;
            for (name, value) in [("content", &content), ("input", &input)] {
                if let Some(value) = value {
                    let value = serde_json::from_str(value).map_err(|error| unreadable(&error))?;
                    fields.insert(Cow::Borrowed(name), value);
                }
            }
            json = serde_json::to_string(&fields).map_err(|error| unreadable(&error))?;
        }
        Ok(Opaque {
            kind: self.kind,
            json,
        })
    }
}

fn kind_of(raw: &RawValue) -> Result<String, Failure> {
    #[derive(serde::Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: String,
    }
    serde_json::from_str(raw.get())
        .map(|Kind { kind }| kind)
        .map_err(|error| unreadable(&error))
}

fn say(index: u32, piece: Option<String>, events: &mut Vec<Event>) {
    if let Some(text) = piece.filter(|piece| !piece.is_empty()) {
        events.push(Event::Fragment(Fragment { index, text }));
    }
}

fn sign(index: u32, piece: Option<String>, events: &mut Vec<Event>) {
    if let Some(text) = piece.filter(|piece| !piece.is_empty()) {
        events.push(Event::Signature(Fragment { index, text }));
    }
}

/// Adds a source. A source is an addition to the response: an unreadable one must not cost the rest.
fn cite(index: u32, raw: &RawValue, events: &mut Vec<Event>) {
    let Ok(source) = serde_json::from_str::<Source>(raw.get()) else {
        return;
    };
    events.push(Event::Citation(Citation {
        index,
        source: source.url.or(source.source).or(source.file_id),
        title: source.title.or(source.document_title),
        cited_text: source.cited_text,
        // The upstream cites with a complete block.
        span: None,
        json: Some(raw.get().to_owned()),
    }));
}

fn add_within_bounds(text: &mut String, piece: &str) -> Result<(), Failure> {
    if text.len() + piece.len() > MAX_OPAQUE_BYTES {
        return Err(Failure::malformed(format!(
            "a block exceeds {MAX_OPAQUE_BYTES} bytes"
        )));
    }
    text.push_str(piece);
    Ok(())
}
