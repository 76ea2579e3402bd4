//! The upstream's error responses: `{"error": "…"}`. Only the text tells one error from another.

use serde_json::Value;
use weir_sdk::adapter::{Failure, FailureKind};
use weir_sdk::failure::{from_status, retry_after_ms, shortened};
use weir_sdk::response::ErrorResponse;

/// Returns the failure for an error response.
pub(super) fn from_response(response: &ErrorResponse) -> Failure {
    let (status, headers) = (response.head.status, &response.head.headers);
    let body = response.text();
    let Some(message) = message_of(&body) else {
        return response.failure_by_status();
    };
    let failure = match kind_of(status, &message) {
        Some(kind) => Failure {
            retry_after_ms: (kind == FailureKind::Unavailable)
                .then(|| retry_after_ms(headers))
                .flatten(),
            ..Failure::new(kind, shortened(&message))
        },
        None => from_status(status, headers, &message),
    };
    let failure = match failure.kind {
        FailureKind::Unsupported => failure.with_param("suffix"),
        _ => failure,
    };
    failure.with_upstream_error(&body)
}

/// Returns the failure for an error in a response. There is no status: the upstream sent 200 before the error.
pub(super) fn from_error(error: &str) -> Failure {
    let message = message_of(error).unwrap_or_default();
    let kind = kind_of(400, &message).unwrap_or(FailureKind::Unavailable);
    let text = match shortened(&message) {
        "" => "the stream ended with an error",
        text => text,
    };
    Failure::new(kind, text).with_upstream_error(error)
}

/// Returns the text under `error`, which sometimes contains another such object.
fn message_of(json: &str) -> Option<String> {
    let value: Value = serde_json::from_str(json).ok()?;
    let error = value.get("error")?;
    let message = match error {
        Value::String(message) => message.clone(),
        error => error.get("message")?.as_str()?.to_owned(),
    };
    // The runner behind the server nests its error.
    let nested_error = serde_json::from_str::<Value>(&message).ok();
    let nested_error = nested_error
        .as_ref()
        .and_then(|nested_error| nested_error.get("error")?.get("message")?.as_str());
    Some(nested_error.map_or(message.clone(), str::to_owned))
}

fn kind_of(status: u16, message: &str) -> Option<FailureKind> {
    if !(400..500).contains(&status) || matches!(status, 401 | 403 | 429) {
        return None;
    }
    let says = |words: &str| message.contains(words);
    if says("context size") || says("context length") {
        Some(FailureKind::ContextLength)
    } else if says("model") && says("not found") {
        Some(FailureKind::ModelNotFound)
    } else if says("does not support insert") {
        // The model's template has no place for a suffix.
        Some(FailureKind::Unsupported)
    } else {
        None
    }
}
