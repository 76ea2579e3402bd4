//! The upstream's wire types. Partly parsed values keep their raw JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// One event of a stream, of any type.
#[derive(Deserialize)]
pub(super) struct StreamEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) message: Option<Message<'a>>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) context_management: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

/// A response, or its beginning.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    #[serde(borrow)]
    pub(super) content: Option<Vec<&'a RawValue>>,
    pub(super) stop_reason: Option<String>,
    pub(super) stop_sequence: Option<String>,
    pub(super) stop_details: Option<StopDetails>,
    #[serde(borrow)]
    pub(super) container: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) context_management: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

/// The reason of a response's end, and the container that the upstream names with it.
#[derive(Deserialize)]
pub(super) struct MessageDelta<'a> {
    #[serde(borrow)]
    pub(super) container: Option<&'a RawValue>,
    pub(super) stop_reason: Option<String>,
    pub(super) stop_sequence: Option<String>,
    pub(super) stop_details: Option<StopDetails>,
}

#[derive(Deserialize)]
pub(super) struct StopDetails {
    pub(super) explanation: Option<String>,
}

/// The blocks of the vocabulary.
#[derive(Deserialize)]
pub(super) struct ContentBlock<'a> {
    pub(super) text: Option<String>,
    #[serde(borrow)]
    pub(super) citations: Option<Vec<&'a RawValue>>,
    pub(super) thinking: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) data: Option<String>,
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
}

/// A piece of any block.
#[derive(Deserialize)]
pub(super) struct BlockDelta<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    pub(super) text: Option<String>,
    pub(super) thinking: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) partial_json: Option<String>,
    #[serde(borrow)]
    pub(super) citation: Option<&'a RawValue>,
}

/// A source, of any type.
#[derive(Deserialize)]
pub(super) struct CitationLocation {
    pub(super) url: Option<String>,
    pub(super) source: Option<String>,
    pub(super) file_id: Option<String>,
    pub(super) title: Option<String>,
    pub(super) document_title: Option<String>,
    pub(super) cited_text: Option<String>,
}
