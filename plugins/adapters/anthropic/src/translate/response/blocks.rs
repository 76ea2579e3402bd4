//! The blocks of a response, each from its start through its deltas to its end.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use weir_sdk::adapter::{Event, Failure};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, CallKind, Citation, Fragment, Opaque, ToolCallStart};
use weir_sdk::custom;
use weir_sdk::response::or_absent;

use super::unreadable;
use super::wire::{BlockDelta, CitationLocation, ContentBlock};

/// Maximum size of a block whose kind the vocabulary lacks, in bytes.
const MAX_OPAQUE_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct OpenBlock {
    /// Its number among the events; an opaque block gets its number at its end.
    index: u32,
    state: BlockState,
}

#[derive(Debug)]
enum BlockState {
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
    Opaque(UnknownBlock),
}

/// A block whose kind the vocabulary lacks, and the content of its deltas.
#[derive(Debug)]
struct UnknownBlock {
    kind: String,
    json: String,
    input: String,
    /// Fields whose value a delta carries, such as a compaction's.
    content: Option<String>,
}

impl OpenBlock {
    pub(super) fn begin(
        raw: &RawValue,
        custom_tools: &[String],
        blocks: &mut Blocks,
        events: &mut Vec<Event>,
    ) -> Result<Self, Failure> {
        // The types of fields are known only for known blocks; an unknown block's may have any type.
        let kind = block_type(raw)?;
        let known = || serde_json::from_str::<ContentBlock<'_>>(raw.get());
        let (index, state) = match kind.as_ref() {
            "text" => {
                let block = known().map_err(|error| unreadable(&error))?;
                let index = blocks.begin(Block::Text, events);
                push_text(index, block.text, events);
                for citation in block.citations.into_iter().flatten() {
                    push_citation(index, citation, events);
                }
                (index, BlockState::Text)
            }
            "thinking" => {
                let block = known().map_err(|error| unreadable(&error))?;
                let index = blocks.begin(Block::Reasoning, events);
                push_text(index, block.thinking, events);
                push_signature(index, block.signature, events);
                (index, BlockState::Thinking)
            }
            "redacted_thinking" => {
                let block = known().map_err(|error| unreadable(&error))?;
                let index = blocks.begin(Block::Reasoning, events);
                if let Some(text) = block.data.filter(|data| !data.is_empty()) {
                    events.push(Event::Sealed(Fragment { index, text }));
                }
                (index, BlockState::Thinking)
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
                let state = match kind {
                    CallKind::Function => BlockState::Call { input, has_deltas },
                    CallKind::Custom => BlockState::CustomCall { input, has_deltas },
                };
                (index, state)
            }
            kind => {
                let unknown = UnknownBlock {
                    kind: kind.to_owned(),
                    json: raw.get().to_owned(),
                    input: String::new(),
                    content: None,
                };
                (0, BlockState::Opaque(unknown))
            }
        };
        Ok(Self { index, state })
    }

    pub(super) fn add_delta(
        &mut self,
        raw: &RawValue,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let index = self.index;
        if let BlockState::Opaque(unknown) = &mut self.state {
            return unknown.add_delta(raw);
        }
        let delta: BlockDelta<'_> =
            serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
        match (delta.kind.as_deref().unwrap_or_default(), &mut self.state) {
            ("text_delta", BlockState::Text) => push_text(index, delta.text, events),
            ("citations_delta", BlockState::Text) => {
                if let Some(citation) = delta.citation {
                    push_citation(index, citation, events);
                }
            }
            ("thinking_delta", BlockState::Thinking) => push_text(index, delta.thinking, events),
            ("signature_delta", BlockState::Thinking) => {
                push_signature(index, delta.signature, events)
            }
            ("input_json_delta", BlockState::Call { has_deltas, .. }) => {
                // White space alone is no input, but may be part of one.
                let has_input = |piece: &String| *has_deltas || !piece.trim().is_empty();
                let piece = delta.partial_json.filter(has_input);
                *has_deltas |= piece.is_some();
                push_text(index, piece, events);
            }
            ("input_json_delta", BlockState::CustomCall { input, has_deltas }) => {
                let has_input = |piece: &String| *has_deltas || !piece.trim().is_empty();
                if let Some(piece) = delta.partial_json.filter(has_input) {
                    if !std::mem::replace(has_deltas, true) {
                        input.clear();
                    }
                    append_bounded(input, &piece)?;
                }
            }
            // Deltas of newer versions.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn end(self, blocks: &mut Blocks, events: &mut Vec<Event>) -> Result<(), Failure> {
        let index = self.index;
        match self.state {
            BlockState::Text | BlockState::Thinking => {}
            BlockState::Call { input, has_deltas } => {
                if !has_deltas {
                    push_text(index, Some(input), events);
                }
            }
            BlockState::CustomCall { input, .. } => {
                push_text(index, Some(custom::input(input)), events)
            }
            BlockState::Opaque(unknown) => {
                let block = unknown.into_block()?;
                blocks.opaque(block, events);
                return Ok(());
            }
        }
        events.push(Event::BlockEnd(index));
        Ok(())
    }
}

impl UnknownBlock {
    fn add_delta(&mut self, raw: &RawValue) -> Result<(), Failure> {
        #[derive(serde::Deserialize)]
        struct UnknownDelta {
            #[serde(default, deserialize_with = "or_absent")]
            partial_json: Option<String>,
            #[serde(default, deserialize_with = "or_absent")]
            content: Option<String>,
        }
        let delta: UnknownDelta =
            serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
        if let Some(piece) = delta.partial_json {
            append_bounded(&mut self.input, &piece)?;
        }
        if let Some(piece) = delta.content {
            append_bounded(self.content.get_or_insert_default(), &piece)?;
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

fn block_type(raw: &RawValue) -> Result<String, Failure> {
    #[derive(serde::Deserialize)]
    struct TypeTag {
        #[serde(rename = "type", default, deserialize_with = "or_absent")]
        kind: Option<String>,
    }
    serde_json::from_str(raw.get())
        .map(|TypeTag { kind }| kind.unwrap_or_default())
        .map_err(|error| unreadable(&error))
}

fn push_text(index: u32, piece: Option<String>, events: &mut Vec<Event>) {
    if let Some(text) = piece.filter(|piece| !piece.is_empty()) {
        events.push(Event::Fragment(Fragment { index, text }));
    }
}

fn push_signature(index: u32, piece: Option<String>, events: &mut Vec<Event>) {
    if let Some(text) = piece.filter(|piece| !piece.is_empty()) {
        events.push(Event::Signature(Fragment { index, text }));
    }
}

/// Adds a source. A source is an addition to the response: an unreadable one must not cost the rest.
fn push_citation(index: u32, raw: &RawValue, events: &mut Vec<Event>) {
    let Ok(source) = serde_json::from_str::<CitationLocation>(raw.get()) else {
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

fn append_bounded(text: &mut String, piece: &str) -> Result<(), Failure> {
    if text.len() + piece.len() > MAX_OPAQUE_BYTES {
        return Err(Failure::malformed(format!(
            "a block exceeds {MAX_OPAQUE_BYTES} bytes"
        )));
    }
    text.push_str(piece);
    Ok(())
}
