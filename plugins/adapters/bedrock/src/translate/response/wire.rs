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
    pub(super) start: Option<BlockStart>,
    #[serde(borrow)]
    pub(super) delta: Option<BlockDelta<'a>>,
    pub(super) stop_reason: Option<String>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockStart {
    pub(super) tool_use: Option<ToolUseStart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUseStart {
    pub(super) tool_use_id: Option<String>,
    pub(super) name: Option<String>,
}

/// A piece of a block, of any type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockDelta<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) tool_use: Option<ToolUseDelta>,
    pub(super) reasoning_content: Option<ReasoningDelta>,
    #[serde(borrow)]
    pub(super) citation: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ToolUseDelta {
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
pub(super) struct ConverseResponse<'a> {
    #[serde(borrow)]
    pub(super) output: Option<ConverseOutput<'a>>,
    pub(super) stop_reason: Option<String>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ConverseOutput<'a> {
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
    pub(super) tool_use: Option<ToolUse<'a>>,
    pub(super) reasoning_content: Option<ReasoningContent>,
    #[serde(borrow)]
    pub(super) citations_content: Option<CitationsContent<'a>>,
    #[serde(flatten)]
    pub(super) other: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse<'a> {
    pub(super) tool_use_id: Option<String>,
    pub(super) name: Option<String>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasoningContent {
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
pub(super) struct CitationsContent<'a> {
    pub(super) content: Option<Vec<TextSegment>>,
    #[serde(borrow)]
    pub(super) citations: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
pub(super) struct TextSegment {
    pub(super) text: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CitationDelta {
    pub(super) title: Option<String>,
    pub(super) source: Option<String>,
    pub(super) source_content: Option<Vec<TextSegment>>,
    pub(super) location: Option<CitationLocation>,
}

#[derive(Deserialize)]
pub(super) struct CitationLocation {
    pub(super) web: Option<WebLocation>,
}

#[derive(Deserialize)]
pub(super) struct WebLocation {
    pub(super) url: Option<String>,
}
