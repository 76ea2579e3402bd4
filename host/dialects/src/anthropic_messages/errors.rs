//! Errors in Anthropic's format: its types, and the sentences that agents recognise.
//!
//! An agent that reads "prompt is too long" compacts its conversation; an agent that reads "credit balance is too low"
//! informs its user. weir adds its own code as `weir_code`, with the invalid field and all other details.

use std::borrow::Cow;

use http::{HeaderName, StatusCode};
use serde_json::{Value, json};
use weir_errors::ApiError;
use weir_sandbox::printable;

/// The header of a request's id in Anthropic's responses.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Anthropic's status for overload; clients fall back to another model then.
const OVERLOADED: u16 = 529;

/// The types of errors that the client's request causes.
const UPSTREAM_TYPES: [&str; 3] = ["invalid_request_error", NOT_FOUND, "request_too_large"];

/// The type of an error about something that does not exist.
const NOT_FOUND: &str = "not_found_error";

/// The maximum bytes of an upstream's message for its client.
const MAX_UPSTREAM_BYTES: usize = 1_024;

/// The maximum bytes of an upstream's details.
const MAX_DETAILS_BYTES: usize = 4_096;

/// The field with the details of an error.
const DETAILS: &str = "details";

/// The field of a conversation that the provider keeps.
const THREAD: &str = "thread";

/// The error code after which Anthropic's SDK continues without a thread (anthropic 2.14.0,
/// `types/thread_unsupported_request_error_details.py` and `lib/threads/_thread_state.py`).
const THREAD_UNSUPPORTED: &str = "thread_unsupported_request";

/// Anthropic's status for an error.
pub(crate) fn status(error: &ApiError) -> StatusCode {
    let upstream = error.upstream().and_then(said_by_upstream);
    match (error.code(), error.status()) {
        ("UNKNOWN_MODEL", _) => StatusCode::NOT_FOUND,
        // SDKs choose the class of an error by its status.
        (_, StatusCode::BAD_REQUEST) if upstream.is_some_and(|(kind, _)| kind == NOT_FOUND) => {
            StatusCode::NOT_FOUND
        }
        (_, StatusCode::SERVICE_UNAVAILABLE) => {
            StatusCode::from_u16(OVERLOADED).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
        }
        (_, status) => status,
    }
}

/// An error in the format of Anthropic's SDKs.
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
    if let Some(details) = details(error) {
        fields.insert(DETAILS.into(), details);
    }
    json!({ "type": "error", "error": fields, "request_id": request_id })
}

/// The type and the message of an upstream with the same dialect: agents depend on its wording.
fn said_by_upstream(error: &Value) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let field = |name: &str| error.get("error")?.get(name)?.as_str();
    let kind = field("type").filter(|kind| UPSTREAM_TYPES.contains(kind))?;
    let message = printable(field("message")?, MAX_UPSTREAM_BYTES);
    Some((kind.into(), message.into()))
}

/// The details that SDKs act on: the upstream's, or those of a thread that weir refuses.
fn details(error: &ApiError) -> Option<Value> {
    if error.code() == "UNSUPPORTED_PARAMETER" && error.param() == Some(THREAD) {
        return Some(json!({ "error_code": THREAD_UNSUPPORTED }));
    }
    let upstream = error.upstream()?;
    said_by_upstream(upstream)?;
    let details = upstream.get("error")?.get(DETAILS)?;
    let is_short = details.is_object() && details.to_string().len() <= MAX_DETAILS_BYTES;
    is_short.then(|| details.clone())
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
