//! The upstream's wire types. Partly parsed values keep their raw JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use weir_sdk::response::or_absent;

/// The payload of an event of a stream, of any type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StreamEvent<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) content_block_index: Option<u64>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) start: Option<BlockStart>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) delta: Option<BlockDelta<'a>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) stop_reason: Option<String>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockStart {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) tool_use: Option<ToolUseStart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUseStart {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) tool_use_id: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) name: Option<String>,
}

/// A piece of a block, of any type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockDelta<'a> {
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) tool_use: Option<ToolUseDelta>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) reasoning_content: Option<ReasoningDelta>,
    #[serde(borrow)]
    pub(super) citation: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ToolUseDelta {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) input: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasoningDelta {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) text: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) signature: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) redacted_content: Option<String>,
}

/// A non-streamed response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseResponse<'a> {
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) output: Option<ConverseOutput<'a>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) stop_reason: Option<String>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ConverseOutput<'a> {
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) message: Option<Message<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) content: Option<Vec<&'a RawValue>>,
}

/// A block of any type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContentBlock<'a> {
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) tool_use: Option<ToolUse<'a>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) reasoning_content: Option<ReasoningContent>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) citations_content: Option<CitationsContent<'a>>,
    #[serde(flatten)]
    pub(super) other: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) tool_use_id: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) name: Option<String>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasoningContent {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) reasoning_text: Option<ReasoningText>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) redacted_content: Option<String>,
}

#[derive(Default, Deserialize)]
pub(super) struct ReasoningText {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) text: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) signature: Option<String>,
}

/// A text with its sources.
#[derive(Deserialize)]
pub(super) struct CitationsContent<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) content: Option<Vec<TextSegment>>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) citations: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
pub(super) struct TextSegment {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) text: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CitationDelta {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) title: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) source: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) source_content: Option<Vec<TextSegment>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) location: Option<CitationLocation>,
}

#[derive(Deserialize)]
pub(super) struct CitationLocation {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) web: Option<WebLocation>,
}

#[derive(Deserialize)]
pub(super) struct WebLocation {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) url: Option<String>,
}
