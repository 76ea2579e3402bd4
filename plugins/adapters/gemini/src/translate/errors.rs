//! The upstream's error responses: `{"error": {"code", "message", "status", "details"}}`, sometimes within a list.

use serde_json::Value;
use weir_sdk::adapter::{Failure, FailureKind};
use weir_sdk::failure::{from_status, shortened};
use weir_sdk::response::ErrorResponse;

/// Returns the failure for an error response.
pub(super) fn from_response(response: &ErrorResponse) -> Failure {
    let (status, headers) = (response.head.status, &response.head.headers);
    let body = response.text();
    let Some(error) = error_of(&body) else {
        return response.failure_by_status();
    };
    let failure = failure(&error, status, &body);
    Failure {
        retry_after_ms: weir_sdk::failure::retry_after_ms(headers)
            .filter(|_| may_retry(failure.kind))
            .or(failure.retry_after_ms),
        ..failure
    }
}

/// Returns the failure for an error in a stream, or in place of a response.
pub(super) fn from_error(json: &str) -> Failure {
    match error_of(json) {
        Some(error) => failure(&error, 500, json),
        None => Failure::unavailable("the answer is an error"),
    }
}

/// Returns the failure for bare JSON after the events of a stream.
pub(super) fn after_stream(stray: &str) -> Option<Failure> {
    let stray = stray.trim();
    error_of(stray).map(|error| failure(&error, 500, stray))
}

/// Returns the object under `error`.
fn error_of(json: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(json).ok()?;
    let value = match &value {
        Value::Array(list) => list.first()?,
        value => value,
    };
    value.get("error").filter(|error| !error.is_null()).cloned()
}

fn failure(error: &Value, status: u16, body: &str) -> Failure {
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let message = match error.as_str() {
        Some(message) => message,
        None => text("message"),
    };
    let name = text("status");
    let code = error.get("code").and_then(Value::as_u64);
    let status = code
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| (400..600).contains(code))
        .unwrap_or(status);
    let failure = match kind_of(name, message) {
        Some(FailureKind::Unauthorized) => {
            // A message about a key may quote the key.
            let name = if name.is_empty() { "the key" } else { name };
            Failure::new(FailureKind::Unauthorized, name)
        }
        Some(kind) => Failure::new(kind, shortened(message)),
        None => from_status(status, &[], message),
    };
    Failure {
        retry_after_ms: retry_delay_ms(error).filter(|_| may_retry(failure.kind)),
        ..failure
    }
    .with_code(name)
    .with_upstream_error(body)
}

fn may_retry(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::RateLimited | FailureKind::Unavailable)
}

/// Returns the kind by the status's name, and by the text if that is more exact.
fn kind_of(name: &str, message: &str) -> Option<FailureKind> {
    let says = |words: &str| message.contains(words);
    Some(match name {
        "INVALID_ARGUMENT" if says("API key") => FailureKind::Unauthorized,
        "INVALID_ARGUMENT" if says("token count") && says("exceeds") => FailureKind::ContextLength,
        "INVALID_ARGUMENT" | "OUT_OF_RANGE" => FailureKind::Rejected,
        // The operator's account or location is at fault, not the client's.
        "FAILED_PRECONDITION" => FailureKind::Unavailable,
        "UNAUTHENTICATED" | "PERMISSION_DENIED" => FailureKind::Unauthorized,
        "NOT_FOUND" if says("odel") => FailureKind::ModelNotFound,
        "NOT_FOUND" => FailureKind::Rejected,
        "RESOURCE_EXHAUSTED" => FailureKind::RateLimited,
        "INTERNAL" | "UNAVAILABLE" | "DEADLINE_EXCEEDED" | "CANCELLED" | "ABORTED" | "UNKNOWN" => {
            FailureKind::Unavailable
        }
        _ => return None,
    })
}

/// Returns `retryDelay` of the detail that has one, e.g. `7.5s`.
fn retry_delay_ms(error: &Value) -> Option<u32> {
    let details = error.get("details")?.as_array()?;
    let delay = details
        .iter()
        .find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
    // `as` saturates.
    (seconds.is_finite() && seconds >= 0.0).then(|| (seconds * 1000.0).ceil() as u32)
}
