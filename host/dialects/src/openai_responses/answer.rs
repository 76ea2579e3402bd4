//! The response as one object, and the parts that streams share with it.

use serde::Serialize;
use serde_json::Value;
use weir_ledger::Credits;
use weir_sandbox::adapter::bindings::chat::Event;

use super::items::{ItemChange, ItemStatus, OutputItem};
use super::output::{Output, OutputWriter, ResponseEnd};
use super::{EchoedFields, ID_PREFIX};
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

#[derive(Debug, Serialize)]
struct ResponseBody<'a> {
    id: String,
    object: &'static str,
    created_at: i64,
    /// weir does not record the time of the end.
    completed_at: Option<i64>,
    status: ItemStatus,
    background: bool,
    error: Option<AnswerError<'a>>,
    incomplete_details: Option<IncompleteDetails>,
    model: &'a str,
    output: &'a [OutputItem],
    usage: Option<ResponseUsage>,
}

#[derive(Debug, Serialize)]
struct AnswerError<'a> {
    code: &'a str,
    message: &'a str,
}

#[derive(Debug, Serialize)]
struct IncompleteDetails {
    reason: &'static str,
}

#[derive(Debug, Serialize)]
struct ResponseUsage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: ResponseOutputDetails,
    total_tokens: u64,
    /// weir's own field: the charge of the request.
    credits: Credits,
}

#[derive(Debug, Serialize)]
struct InputDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(Debug, Serialize)]
struct ResponseOutputDetails {
    reasoning_tokens: u64,
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
