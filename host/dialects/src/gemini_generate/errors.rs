//! Errors in Google's format: its statuses, and details of its types.
//!
//! weir's own code is the `reason` of the first detail, an `ErrorInfo`, beside the request's id and all further facts.
//! The invalid field is in a `BadRequest`, and the delay before a retry in a `RetryInfo` (googleapis.com,
//! `google/rpc/error_details.proto`).

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Map, Value, json};
use weir_errors::ApiError;
use weir_sandbox::printable;

use super::field;

/// The statuses of errors that the client's request causes.
const UPSTREAM_STATUSES: [&str; 3] = ["INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE"];

/// The maximum bytes of an upstream's message for its client.
const MAX_UPSTREAM_BYTES: usize = 1_024;

/// Google's words for a prompt that is too long, as the Gemini API writes them.
const TOO_LONG: &str = "input token count exceeds the maximum number of tokens allowed";

/// The HTTP status for an error.
pub(crate) fn status(error: &ApiError) -> StatusCode {
    match error.code() {
        "UNKNOWN_MODEL" => StatusCode::NOT_FOUND,
        _ => error.status(),
    }
}

/// An error in the format of Google's SDKs.
pub(crate) fn body(error: &ApiError, request_id: &str) -> Value {
    let upstream = error.upstream().and_then(said_by_upstream);
    let (word, message) = upstream.unwrap_or_else(|| (word(error).into(), message(error)));
    json!({ "error": {
        "code": status(error).as_u16(),
        "message": message,
        "status": word,
        "details": details(error, request_id),
    } })
}

/// The status and the message of an upstream with the same dialect.
fn said_by_upstream(error: &Value) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let field = |name: &str| error.get("error")?.get(name)?.as_str();
    let word = field("status").filter(|word| UPSTREAM_STATUSES.contains(word))?;
    let message = printable(field("message")?, MAX_UPSTREAM_BYTES);
    Some((word.into(), message.into()))
}

fn details(error: &ApiError, request_id: &str) -> Vec<Value> {
    // The values of the type's map are texts.
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let facts = error.details().iter();
    let mut metadata: Map<String, Value> = facts
        .map(|(name, value)| (name.clone(), text(value).into()))
        .collect();
    metadata.insert("request_id".into(), request_id.into());
    let mut details = vec![json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": error.code(),
        "domain": "weir",
        "metadata": metadata,
    })];
    if let Some(param) = error.param() {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{ "field": field(param), "description": error.message() }],
        }));
    }
    if let Some(seconds) = error.retry_after_seconds() {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{seconds}s"),
        }));
    }
    details
}

/// The status of Google's RPC system for the HTTP status (googleapis.com, `google/rpc/code.proto`).
fn word(error: &ApiError) -> &'static str {
    match status(error).as_u16() {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        405 | 501 => "UNIMPLEMENTED",
        408 | 504 => "DEADLINE_EXCEEDED",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        400..=499 => "INVALID_ARGUMENT",
        502 | 503 => "UNAVAILABLE",
        _ => "INTERNAL",
    }
}

fn message(error: &ApiError) -> Cow<'_, str> {
    let said = error.message();
    match error.code() {
        "UNKNOWN_MODEL" => match error.detail("model").and_then(Value::as_str) {
            Some(model) => format!("models/{model} is not found. {said}").into(),
            None => said.into(),
        },
        "CONTEXT_LENGTH_EXCEEDED" if !said.contains("exceeds the maximum number of tokens") => {
            format!("The {TOO_LONG}. {said}").into()
        }
        _ => said.into(),
    }
}
