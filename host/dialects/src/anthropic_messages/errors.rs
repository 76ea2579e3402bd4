//! Errors in Anthropic's words: its types, and the sentences that agents look for.
//!
//! An agent that reads "prompt is too long" compacts its conversation; one that reads "credit balance is too low" tells
//! people so. weir's own code stands beside the type as `weir_code`, with the field that is wrong and all else that weir
//! has to say.

use std::borrow::Cow;

use http::{HeaderName, StatusCode};
use serde_json::{Value, json};
use weir_sandbox::printable;

use weir_errors::ApiError;

/// The header of a request's id in Anthropic's answers.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// What Anthropic answers with where it is overloaded: clients that are told so ask another model.
const OVERLOADED: u16 = 529;

/// The types of errors that are about a client's own request.
const UPSTREAM_TYPES: [&str; 3] = [
    "invalid_request_error",
    "not_found_error",
    "request_too_large",
];

/// Bytes of an upstream's text that its client is told.
const MAX_UPSTREAM_BYTES: usize = 1_024;

/// The status that Anthropic has for an error.
pub(crate) fn status(error: &ApiError) -> StatusCode {
    match (error.code(), error.status()) {
        ("UNKNOWN_MODEL", _) => StatusCode::NOT_FOUND,
        (_, StatusCode::SERVICE_UNAVAILABLE) => {
            StatusCode::from_u16(OVERLOADED).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
        }
        (_, status) => status,
    }
}

/// An error as Anthropic's SDKs read it.
pub(crate) fn body(error: &ApiError, request_id: &str) -> Value {
    let mut fields = error.details().clone();
    let upstream = error.upstream().and_then(said_by_upstream);
    let (kind, message) = upstream.unwrap_or_else(|| (kind(error).into(), message(error)));
    fields.insert("type".into(), kind.into());
    fields.insert("message".into(), message.into());
    fields.insert("weir_code".into(), error.code().into());
    if let Some(param) = error.param() {
        fields.insert("param".into(), param.into());
    }
    json!({ "type": "error", "error": fields, "request_id": request_id })
}

/// The type and the text of an upstream that speaks the dialect itself: agents act on its wording.
fn said_by_upstream(error: &Value) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let field = |name: &str| error.get("error")?.get(name)?.as_str();
    let kind = field("type").filter(|kind| UPSTREAM_TYPES.contains(kind))?;
    let message = printable(field("message")?, MAX_UPSTREAM_BYTES);
    Some((kind.into(), message.into()))
}

fn kind(error: &ApiError) -> &'static str {
    match (error.code(), status(error).as_u16()) {
        ("QUOTA_EXCEEDED" | "BUDGET_EXCEEDED", _) => "billing_error",
        (_, 401) => "authentication_error",
        (_, 403) => "permission_error",
        (_, 404) => "not_found_error",
        (_, 408 | 504) => "timeout_error",
        (_, 413) => "request_too_large",
        (_, 429) => "rate_limit_error",
        (_, 400..=499) => "invalid_request_error",
        (_, OVERLOADED) => "overloaded_error",
        _ => "api_error",
    }
}

fn message(error: &ApiError) -> Cow<'_, str> {
    let said = error.message();
    match error.code() {
        "UNKNOWN_MODEL" => match error.detail("model").and_then(Value::as_str) {
            Some(model) => format!("model: {model}. {said}").into(),
            None => said.into(),
        },
        "CONTEXT_LENGTH_EXCEEDED" if !said.contains("prompt is too long") => {
            format!("prompt is too long. {said}").into()
        }
        "QUOTA_EXCEEDED" => format!("Your credit balance is too low. {said}").into(),
        _ => said.into(),
    }
}
