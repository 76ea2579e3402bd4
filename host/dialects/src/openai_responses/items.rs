//! The items of a response's output, and the events about their changes.

use serde::Serialize;

/// An item of the output.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OutputItem {
    Message {
        id: String,
        status: ItemStatus,
        role: &'static str,
        content: Vec<OutputContent>,
    },
    Reasoning {
        id: String,
        summary: Vec<ReasoningSummary>,
        encrypted_content: Option<String>,
    },
    FunctionCall {
        id: String,
        status: ItemStatus,
        call_id: String,
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        arguments: String,
    },
    CustomToolCall {
        id: String,
        status: ItemStatus,
        call_id: String,
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        input: String,
    },
    ImageGenerationCall {
        id: String,
        status: ItemStatus,
        result: Option<String>,
        output_format: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ItemStatus {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

/// The content of a message.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OutputContent {
    OutputText {
        text: String,
        annotations: Vec<OutputAnnotation>,
        logprobs: [(); 0],
    },
    Refusal {
        refusal: String,
    },
}

/// The readable part of reasoning.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(tag = "type", rename = "summary_text")]
pub(super) struct ReasoningSummary {
    pub(super) text: String,
}

/// A source of a stretch of a text, in Unicode scalar values.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename = "url_citation")]
pub(super) struct OutputAnnotation {
    pub(super) start_index: usize,
    pub(super) end_index: usize,
    pub(super) title: String,
    pub(super) url: String,
}

/// The content of an event about a change. The event's type determines its fields.
#[derive(Debug, Default, Serialize)]
pub(super) struct ItemChange<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) item_id: Option<&'a str>,
    pub(super) output_index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) item: Option<&'a OutputItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) part: Option<OutputPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) annotation_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) annotation: Option<&'a OutputAnnotation>,
    /// Only in events of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logprobs: Option<[(); 0]>,
}

/// A part in an event.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum OutputPart<'a> {
    Content(&'a OutputContent),
    Summary(&'a ReasoningSummary),
}

impl OutputItem {
    /// Returns the position of the item's last part.
    pub(super) fn place(&self, output_index: usize) -> ItemChange<'_> {
        let (id, content_index, summary_index) = match self {
            Self::Message { id, content, .. } => (id, content.len().checked_sub(1), None),
            Self::Reasoning { id, summary, .. } => (id, None, summary.len().checked_sub(1)),
            Self::FunctionCall { id, .. }
            | Self::CustomToolCall { id, .. }
            | Self::ImageGenerationCall { id, .. } => (id, None, None),
        };
        ItemChange {
            item_id: Some(id),
            output_index,
            content_index,
            summary_index,
            ..ItemChange::default()
        }
    }
}
