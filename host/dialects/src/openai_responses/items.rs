//! The items of a response's output, and the events about their changes.

use serde::Serialize;
use serde_json::{Value, json};

use crate::schema::{Described, Schemas, written};

written! {
    /// An item of the output.
    #[derive(Debug, Clone)]
    #[serde(tag = "type", rename_all = "snake_case")]
    pub(super) enum OutputItem as "ResponsesOutputItem" {
        /// A message of the model.
        Message as "ResponsesMessage" {
            /// The item's id.
            id: String,
            /// The state of the item.
            status: ItemStatus,
            /// The author's role.
            role: &'static str = [OneOf(&["assistant"])],
            /// The provider's word for the purpose of the message, such as `commentary` or `final_answer`. Send it back
            /// unchanged.
            #[serde(skip_serializing_if = "Option::is_none")]
            phase: Option<String>,
            /// The parts of the message.
            content: Vec<OutputContent>,
        },
        /// The model's reasoning, or a provider's proof of the item before.
        Reasoning as "ResponsesReasoningItem" {
            /// The item's id.
            id: String,
            /// The readable parts.
            summary: Vec<ReasoningSummary>,
            /// The sealed form. Send it back unchanged.
            encrypted_content: Option<String>,
        },
        /// A call of a function.
        FunctionCall as "ResponsesFunctionCall" {
            /// The item's id.
            id: String,
            /// The state of the item.
            status: ItemStatus,
            /// The id of the call, which its output repeats.
            call_id: String,
            /// The name of the function.
            name: String,
            /// The namespace of the function.
            #[serde(skip_serializing_if = "Option::is_none")]
            namespace: Option<String>,
            /// The arguments, as JSON in a text.
            arguments: String,
        },
        /// A call of a tool with free text.
        CustomToolCall as "ResponsesCustomToolCall" {
            /// The item's id.
            id: String,
            /// The state of the item.
            status: ItemStatus,
            /// The id of the call, which its output repeats.
            call_id: String,
            /// The name of the tool.
            name: String,
            /// The namespace of the tool.
            #[serde(skip_serializing_if = "Option::is_none")]
            namespace: Option<String>,
            /// The text.
            input: String,
        },
        /// An image that the model has made.
        ImageGenerationCall as "ResponsesImageGenerationCall" {
            /// The item's id.
            id: String,
            /// The state of the item.
            status: ItemStatus,
            /// The image in base64.
            result: Option<String>,
            /// The format of the image, such as `png`.
            output_format: String,
        },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ItemStatus {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

impl Described for ItemStatus {
    fn schema(_: &mut Schemas) -> Value {
        let all = [
            Self::InProgress,
            Self::Completed,
            Self::Incomplete,
            Self::Failed,
        ];
        json!({ "type": "string", "enum": all })
    }
}

written! {
    /// A part of a message.
    #[derive(Debug, Clone)]
    #[serde(tag = "type", rename_all = "snake_case")]
    pub(super) enum OutputContent as "ResponsesOutputContent" {
        /// A text.
        OutputText as "ResponsesOutputText" {
            /// The text.
            text: String,
            /// The sources of the text.
            annotations: Vec<OutputAnnotation>,
            /// Empty: log probabilities are not supported.
            logprobs: [(); 0],
        },
        /// A refusal of the model.
        Refusal as "ResponsesRefusal" {
            /// The text.
            refusal: String,
        },
    }
}

/// The readable part of reasoning.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(tag = "type", rename = "summary_text")]
pub(super) struct ReasoningSummary {
    pub(super) text: String,
}

impl Described for ReasoningSummary {
    fn schema(schemas: &mut Schemas) -> Value {
        schemas.named("ResponsesReasoningSummary", "ReasoningSummary", |_| json!({
            "type": "object",
            "description": "A readable part of reasoning.",
            "properties": {
                "type": { "type": "string", "enum": ["summary_text"], "description": "The kind of the part." },
                "text": { "type": "string", "description": "The text." },
            },
            "required": ["type", "text"],
        }))
    }
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

impl Described for OutputAnnotation {
    fn schema(schemas: &mut Schemas) -> Value {
        schemas.named("ResponsesAnnotation", "OutputAnnotation", |_| json!({
            "type": "object",
            "description": "The source of a stretch of a text. Positions are in characters, the end exclusive.",
            "properties": {
                "type": { "type": "string", "enum": ["url_citation"], "description": "The kind of the source." },
                "start_index": { "type": "integer", "description": "The position of the first character." },
                "end_index": { "type": "integer", "description": "The position behind the last character." },
                "title": { "type": "string", "description": "The title of the source." },
                "url": { "type": "string", "description": "The URL of the source." },
            },
            "required": ["type", "start_index", "end_index", "title", "url"],
        }))
    }
}

written! {
    /// An event about a change of an item. The event's type determines its fields.
    #[derive(Debug, Default)]
    pub(super) struct ItemChange<'a> as "ResponsesItemChange" {
        /// The id of the changed item.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) item_id: Option<&'a str>,
        /// The position of the item in the output.
        pub(super) output_index: usize,
        /// The item, at its beginning or its end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) item: Option<&'a OutputItem>,
        /// The position of the part in the message.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) content_index: Option<usize>,
        /// The position of the part in the reasoning.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) summary_index: Option<usize>,
        /// The part, at its beginning or its end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) part: Option<OutputPart<'a>>,
        /// The next piece of a text.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) delta: Option<&'a str>,
        /// The whole text, at its end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) text: Option<&'a str>,
        /// The whole refusal, at its end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) refusal: Option<&'a str>,
        /// The whole arguments of a call, at their end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) arguments: Option<&'a str>,
        /// The whole text for a tool, at its end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) input: Option<&'a str>,
        /// The position of the source among the sources of the text.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) annotation_index: Option<usize>,
        /// The source.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) annotation: Option<&'a OutputAnnotation>,
        /// In events of a text: empty.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) logprobs: Option<[(); 0]>,
    }
}

/// A part in an event.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum OutputPart<'a> {
    Content(&'a OutputContent),
    Summary(&'a ReasoningSummary),
}

impl Described for OutputPart<'_> {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "anyOf": [OutputContent::schema(schemas), ReasoningSummary::schema(schemas)] })
    }
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
