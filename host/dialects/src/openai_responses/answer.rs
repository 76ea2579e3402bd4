//! The response as one object, and the parts that streams share with it.

use serde_json::{Value, json};
use weir_ledger::Credits;
use weir_sandbox::adapter::bindings::chat::Event;

use super::EchoedFields;
use super::items::{ItemChange, ItemStatus, OutputItem};
use super::output::{Output, OutputWriter, ResponseEnd};
use super::wire::{ID_PREFIX, ResponsesRequestBody};
use crate::schema::{Described as _, Schemas, nullable, written};
use crate::{AnswerHead, BilledUsage};

/// A plain response under construction.
#[derive(Debug, Clone)]
pub struct ResponseObject {
    head: AnswerHead,
    echo: EchoedFields,
    output: Output,
}

impl ResponseObject {
    /// Returns an empty response.
    pub fn new(head: AnswerHead, echo: EchoedFields) -> Self {
        Self {
            output: Output::new(&head.id, &echo.names),
            head,
            echo,
        }
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        self.output.follow(event, &mut NoWriter);
    }

    /// Sets the provider of the following events.
    pub fn answered_by(&mut self, provider: &str) {
        self.output.answered_by(provider);
    }

    /// Discards an attempt without output.
    pub fn clear(&mut self) {
        self.output = Output::new(&self.head.id, &self.echo.names);
    }

    /// Returns the `response` object.
    pub fn into_body(self, billed: &BilledUsage) -> Vec<u8> {
        let (head, echo, output) = (&self.head, &self.echo, &self.output);
        object(head, echo, output, &ResponseStage::Ended(billed)).into_bytes()
    }
}

/// Ignores changes, because a plain response is written at once.
struct NoWriter;

impl OutputWriter for NoWriter {
    fn write(&mut self, _: &'static str, _: &ItemChange<'_>) {}
}

/// The progress of a response.
pub(super) enum ResponseStage<'a> {
    InProgress,
    Ended(&'a BilledUsage),
    /// The response failed, with this error in the format of OpenAI's SDKs.
    Failed(&'a Value),
}

/// Writes the `response` object, with the request's own fields at its end.
pub(super) fn object(
    head: &AnswerHead,
    echo: &EchoedFields,
    output: &Output,
    stage: &ResponseStage<'_>,
) -> String {
    let items = match stage {
        // At its beginning, a stream has no output yet.
        ResponseStage::InProgress => &[],
        ResponseStage::Ended(_) | ResponseStage::Failed(_) => output.items(),
    };
    let (status, reason, billed, error) = match stage {
        ResponseStage::InProgress => (ItemStatus::InProgress, None, None, None),
        ResponseStage::Ended(billed) => match output.end() {
            ResponseEnd::Completed => (ItemStatus::Completed, None, Some(*billed), None),
            ResponseEnd::Incomplete(reason) => {
                (ItemStatus::Incomplete, Some(reason), Some(*billed), None)
            }
        },
        ResponseStage::Failed(error) => (ItemStatus::Failed, None, None, Some(*error)),
    };
    let body = ResponseBody {
        id: format!("{ID_PREFIX}{}", head.id),
        object: "response",
        created_at: head.created,
        completed_at: None,
        status,
        background: false,
        error: error.map(|error| AnswerError {
            code: error["code"].as_str().unwrap_or("server_error"),
            message: error["message"].as_str().unwrap_or_default(),
        }),
        incomplete_details: reason.map(|reason| IncompleteDetails { reason }),
        model: &head.model,
        output: items,
        usage: billed.map(ResponseUsage::from),
    };
    let mut json = serde_json::to_string(&body).expect("plain structs serialize");
    json.pop();
    json.push(',');
    json.push_str(&echo.json);
    json.push('}');
    json
}

written! {
    #[derive(Debug)]
    struct ResponseBody<'a> as "ResponsesBody" {
        /// The response's id, for `previous_response_id` in a later request.
        id: String,
        /// The kind of the object.
        object: &'static str = [OneOf(&["response"])],
        /// The time of the response, in seconds since 1970.
        created_at: i64,
        /// Null: weir does not record the time of the end.
        completed_at: Option<i64>,
        /// The state of the response.
        status: ItemStatus,
        /// Whether the response was made in the background: never.
        background: bool,
        /// The error of a failed response in a stream.
        error: Option<AnswerError<'a>>,
        /// The reason for which the response is incomplete.
        incomplete_details: Option<IncompleteDetails>,
        /// The requested model.
        model: &'a str,
        /// The response's items. To continue the conversation, send them back unchanged, or send the response's id.
        output: &'a [OutputItem],
        /// The token usage, at the end of the response.
        usage: Option<ResponseUsage>,
    }
}

written! {
    /// The error of a failed response.
    #[derive(Debug)]
    struct AnswerError<'a> as "ResponsesError" {
        /// OpenAI's code of the error.
        code: &'a str,
        /// The message, for people.
        message: &'a str,
    }
}

written! {
    /// The reason for which a response is incomplete.
    #[derive(Debug)]
    struct IncompleteDetails as "ResponsesIncompleteDetails" {
        /// The reason.
        reason: &'static str = [OneOf(&["max_output_tokens", "content_filter"])],
    }
}

written! {
    /// The token usage and its charge.
    #[derive(Debug)]
    struct ResponseUsage as "ResponsesUsage" {
        /// The tokens of the input.
        input_tokens: u64,
        /// A part of the tokens of the input.
        input_tokens_details: InputDetails,
        /// The tokens of the response, reasoning included.
        output_tokens: u64,
        /// A part of the tokens of the response.
        output_tokens_details: ResponseOutputDetails,
        /// The tokens of both.
        total_tokens: u64,
        /// The charge of the request, in credits. It is a field of weir.
        credits: Credits,
    }
}

written! {
    /// A part of the tokens of the input.
    #[derive(Debug)]
    struct InputDetails as "ResponsesInputTokens" {
        /// The tokens that the provider's cache had.
        cached_tokens: u64,
        /// The tokens that the provider's cache has taken.
        cache_write_tokens: u64,
    }
}

written! {
    /// A part of the tokens of the response.
    #[derive(Debug)]
    struct ResponseOutputDetails as "ResponsesOutputTokens" {
        /// The tokens of the reasoning.
        reasoning_tokens: u64,
    }
}

/// The fields of a request that its response repeats.
const ECHOED: [&str; 21] = [
    "instructions",
    "previous_response_id",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tool_calls",
    "text",
    "reasoning",
    "max_output_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "truncation",
    "metadata",
    "store",
    "service_tier",
    "prompt_cache_key",
    "safety_identifier",
    "user",
];

/// The schema of a response: its own fields, and those of the request, which it repeats.
pub(super) fn describe(schemas: &mut Schemas) {
    let own = ResponseBody::schema(schemas);
    let mut schema = json!({
        "type": "object",
        "description": "A model's response in Responses. The fields of the request have the values of the request, or OpenAI's defaults.",
        "properties": {},
        "required": ECHOED,
    });
    let request = ResponsesRequestBody::schema(schemas);
    for field in ECHOED {
        let mut echoed = schemas.field(&request, field);
        echoed["description"] = "The value of the request.".into();
        schema["properties"][field] = nullable(echoed);
    }
    schemas.flatten(&mut schema, &own);
    schemas.add("ResponsesAnswer", schema);
}

impl From<&BilledUsage> for ResponseUsage {
    fn from(billed: &BilledUsage) -> Self {
        let counts = &billed.tokens;
        Self {
            input_tokens: counts.input,
            input_tokens_details: InputDetails {
                cached_tokens: counts.cache_read,
                cache_write_tokens: counts
                    .cache_write_short
                    .saturating_add(counts.cache_write_long),
            },
            output_tokens: counts.output,
            output_tokens_details: ResponseOutputDetails {
                reasoning_tokens: counts.reasoning,
            },
            total_tokens: counts.input.saturating_add(counts.output),
            credits: billed.credits,
        }
    }
}
