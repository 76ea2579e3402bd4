//! The upstream's wire types. Partly parsed values keep their raw JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_sdk::response::or_absent;

/// A response, or a piece of one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) response_id: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) model_version: Option<String>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) candidates: Option<Vec<Candidate<'a>>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) prompt_feedback: Option<PromptFeedback>,
    #[serde(borrow)]
    pub(super) usage_metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptFeedback {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) index: Option<u64>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) content: Option<Content<'a>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) finish_reason: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) finish_message: Option<String>,
    #[serde(borrow)]
    pub(super) grounding_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) citation_metadata: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
pub(super) struct Content<'a> {
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) parts: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) text: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) thought: Option<bool>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) thought_signature: Option<String>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) function_call: Option<FunctionCall<'a>>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) inline_data: Option<Blob<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Blob<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) mime_type: Option<String>,
    #[serde(borrow)]
    pub(super) data: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FunctionCall<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) id: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) name: Option<String>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    pub(super) partial_args: Option<Vec<PartialArg<'a>>>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) will_continue: Option<bool>,
}

/// A piece of a call's arguments, with its path.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartialArg<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) json_path: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) string_value: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) number_value: Option<serde_json::Number>,
    #[serde(default, deserialize_with = "or_absent")]
    pub(super) bool_value: Option<bool>,
    #[serde(borrow)]
    pub(super) null_value: Option<&'a RawValue>,
}

/// Returns the kind of an unknown part: the name of the one field that identifies it.
pub(super) fn kind_of(part: &RawValue) -> Option<String> {
    let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(part.get()).ok()?;
    let mut kinds = fields.into_iter().filter(|(name, value)| {
        let is_about = matches!(
            name.as_ref(),
            "thought"
                | "thoughtSignature"
                | "text"
                | "videoMetadata"
                | "mediaResolution"
                | "partMetadata"
        );
        !is_about && value.get().starts_with('{')
    });
    kinds.next().map(|(name, _)| name.into_owned())
}
