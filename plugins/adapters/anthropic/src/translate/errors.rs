//! The upstream's error responses: `{"type": "error", "error": {"type", "message"}, "request_id"}`.

use serde::Deserialize;
use weir_sdk::adapter::{Failure, FailureKind};
use weir_sdk::aws;
use weir_sdk::failure::{from_status, header, retry_after_ms, shortened};
use weir_sdk::response::ErrorResponse;

#[derive(Debug, Default, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    error: ErrorDetails,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorDetails {
    #[serde(rename = "type")]
    kind: String,
    message: String,
}

/// Returns the failure for an error response.
pub(super) fn from_response(response: &ErrorResponse) -> Failure {
    let (status, headers) = (response.head.status, &response.head.headers);
    let body = response.text();
    if header(headers, aws::ERROR_HEADER).is_some() {
        return aws::failure_of_response(status, headers, &body);
    }
    let Ok(ErrorBody { error }) = serde_json::from_str(&body) else {
        return response.failure_by_status();
    };
    let failure = match error.kind() {
        Some(kind) => Failure {
            retry_after_ms: matches!(kind, FailureKind::RateLimited | FailureKind::Unavailable)
                .then(|| retry_after_ms(headers))
                .flatten(),
            ..Failure::new(kind, error.text(kind))
        },
        // Vertex AI's own error, which names no type.
        None if status == 404 && error.message.contains("Publisher Model") => {
            Failure::new(FailureKind::ModelNotFound, shortened(&error.message))
        }
        None => from_status(status, headers, &error.message),
    };
    failure.with_code(error.kind).with_upstream_error(&body)
}

/// Returns the failure for an error in a stream. There is no status: the upstream sent 200 before the error.
pub(super) fn from_error(json: &str) -> Failure {
    let ErrorBody { error } = serde_json::from_str(json).unwrap_or_default();
    // An error in the middle of a response is the upstream's failure.
    let kind = error.kind().unwrap_or(FailureKind::Unavailable);
    let text = match error.text(kind) {
        "" => "the stream ended with an error",
        text => text,
    };
    Failure::new(kind, text)
        .with_code(&error.kind)
        .with_upstream_error(json)
}

impl ErrorDetails {
    /// Returns the kind by the error's type, and by its text if that is more exact.
    fn kind(&self) -> Option<FailureKind> {
        let says = |words: &str| self.message.contains(words);
        Some(match self.kind.as_str() {
            "invalid_request_error" => {
                if says("prompt is too long") || says("exceed context limit") {
                    FailureKind::ContextLength
                } else if says("content filtering policy") {
                    FailureKind::Filtered
                } else if says("credit balance") {
                    // The operator's account is out of credit, not the client's.
                    FailureKind::Unavailable
                } else {
                    FailureKind::Rejected
                }
            }
            "request_too_large" => FailureKind::Rejected,
            "not_found_error" if self.message.starts_with("model") => FailureKind::ModelNotFound,
            "not_found_error" => FailureKind::Rejected,
            "authentication_error" | "permission_error" => FailureKind::Unauthorized,
            "rate_limit_error" => FailureKind::RateLimited,
            "overloaded_error" | "api_error" | "timeout_error" | "billing_error" => {
                FailureKind::Unavailable
            }
            _ => return None,
        })
    }

    fn text(&self, kind: FailureKind) -> &str {
        // A message about a key may quote part of the key.
        if kind == FailureKind::Unauthorized || self.message.is_empty() {
            &self.kind
        } else {
            shortened(&self.message)
        }
    }
}
