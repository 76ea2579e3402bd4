//! The upstream's wire types. Partly parsed values keep their raw JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_sdk::response::or_absent;

/// One event of a stream, of any type.
#[derive(Deserialize)]
pub(super) struct StreamEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "or_absent")]
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
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// A response, or its beginning.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) id: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) model: Option<String>,
    #[serde(borrow)]
    pub(super) content: Option<Vec<&'a RawValue>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) stop_reason: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) stop_sequence: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) stop_details: Option<StopDetails>,
    #[serde(borrow)]
    pub(super) container: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) context_management: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// The reason of a response's end, and the container that the upstream names with it.
#[derive(Deserialize)]
pub(super) struct MessageDelta<'a> {
    #[serde(borrow)]
    pub(super) container: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) stop_reason: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) stop_sequence: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) stop_details: Option<StopDetails>,
}

#[derive(Deserialize)]
pub(super) struct StopDetails {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) explanation: Option<String>,
}

/// The blocks of the vocabulary.
#[derive(Deserialize)]
pub(super) struct ContentBlock<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) text: Option<String>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) citations: Option<Vec<&'a RawValue>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) thinking: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) signature: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) data: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) id: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) name: Option<String>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
}

/// A piece of any block.
#[derive(Deserialize)]
pub(super) struct BlockDelta<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) text: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) thinking: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) signature: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) partial_json: Option<String>,
    #[serde(borrow)]
    pub(super) citation: Option<&'a RawValue>,
}

/// A source, of any type.
#[derive(Deserialize)]
pub(super) struct CitationLocation {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) url: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) source: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) file_id: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) title: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) document_title: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) cited_text: Option<String>,
}
