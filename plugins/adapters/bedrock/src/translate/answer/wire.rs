//! The upstream's wire types. Partly parsed values keep their raw JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The payload of an event of a stream, of any type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StreamEvent<'a> {
    pub(super) content_block_index: Option<u64>,
    pub(super) start: Option<Start>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    pub(super) stop_reason: Option<String>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Start {
    pub(super) tool_use: Option<CallStart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CallStart {
    pub(super) tool_use_id: Option<String>,
    pub(super) name: Option<String>,
}

/// A piece of a block, of any type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) tool_use: Option<CallDelta>,
    pub(super) reasoning_content: Option<ReasoningDelta>,
    #[serde(borrow)]
    pub(super) citation: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct CallDelta {
    pub(super) input: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasoningDelta {
    pub(super) text: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) redacted_content: Option<String>,
}

/// A non-streamed response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Whole<'a> {
    #[serde(borrow)]
    pub(super) output: Option<Output<'a>>,
    pub(super) stop_reason: Option<String>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Output<'a> {
    #[serde(borrow)]
    pub(super) message: Option<Message<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    pub(super) content: Option<Vec<&'a RawValue>>,
}

/// A block of any type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContentBlock<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) tool_use: Option<Call<'a>>,
    pub(super) reasoning_content: Option<Reasoning>,
    #[serde(borrow)]
    pub(super) citations_content: Option<Cited<'a>>,
    #[serde(flatten)]
    pub(super) other: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Call<'a> {
    pub(super) tool_use_id: Option<String>,
    pub(super) name: Option<String>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reasoning {
    pub(super) reasoning_text: Option<ReasoningText>,
    pub(super) redacted_content: Option<String>,
}

#[derive(Default, Deserialize)]
pub(super) struct ReasoningText {
    pub(super) text: Option<String>,
    pub(super) signature: Option<String>,
}

/// A text with its sources.
#[derive(Deserialize)]
pub(super) struct Cited<'a> {
    pub(super) content: Option<Vec<TextPiece>>,
    #[serde(borrow)]
    pub(super) citations: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
pub(super) struct TextPiece {
    pub(super) text: Option<String>,
}

/// A source.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CitationDelta {
    pub(super) title: Option<String>,
    pub(super) source: Option<String>,
    pub(super) source_content: Option<Vec<TextPiece>>,
    pub(super) location: Option<Location>,
}

#[derive(Deserialize)]
pub(super) struct Location {
    pub(super) web: Option<Web>,
}

#[derive(Deserialize)]
pub(super) struct Web {
    pub(super) url: Option<String>,
}
