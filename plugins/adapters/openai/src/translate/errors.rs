//! The upstream's error responses.
//!
//! OpenAI writes `{"error": {"message", "type", "param", "code"}}`. Servers of its dialect also write an error that
//! is a string or within a list, `{"detail": …}` (FastAPI), a bare `{"message": …}`, HTML, or nothing.

use serde_json::Value;
use serde_json::value::RawValue;
use weir_sdk::adapter::{Failure, FailureKind, Header};
use weir_sdk::failure::{from_status, retry_after_ms, shortened};
use weir_sdk::response::ErrorResponse;

/// Returns the failure for an error response.
pub(super) fn from_response(response: &ErrorResponse) -> Failure {
    let (status, headers) = (response.head.status, &response.head.headers);
    let body = response.text();
    let details = ErrorDetails::read(&body);
    // An HTML page is useless in a log.
    if details.message.is_empty() && response.is_page() {
        let text = format!("status {status} with an HTML page");
        return from_status(status, headers, &text);
    }
    details.failure(status, headers, &body)
}

/// Returns the failure for an error in a response or in a stream. There is no status: the upstream sent 200 before
/// the error.
pub(super) fn from_error(json: &str) -> Failure {
    let details = ErrorDetails::read(json);
    // OpenRouter puts the status of the upstream behind it here.
    if let Ok(status @ 400..=599) = details.code.parse::<u16>() {
        return details.failure(status, &[], json);
    }
    let names = |candidates: &[&str]| {
        candidates.contains(&details.code.as_str()) || candidates.contains(&details.kind.as_str())
    };
    let failure = if let Some(kind) = details.kind_by_code(400) {
        Failure::new(kind, &details.message)
    } else if names(&[
        "rate_limit_exceeded",
        "rate_limit_error",
        "rate_limit",
        "tokens",
        "requests",
    ]) {
        Failure::new(FailureKind::RateLimited, &details.message)
    } else if names(&[
        "invalid_api_key",
        "authentication_error",
        "permission_error",
    ]) {
        Failure::new(
            FailureKind::Unauthorized,
            format!("{} {}", details.kind, details.code).trim(),
        )
    } else if names(&["invalid_request_error", "BadRequestError"]) || details.is_image_error() {
        Failure::rejected(&details.message)
    } else {
        // `server_error` and all others: an error in the middle of a response is the upstream's failure.
        Failure::unavailable(&details.message)
    };
    details.with_details(failure, json)
}

/// Returns whether an `error` beside a response is one: some servers fill the field with an empty value.
pub(super) fn is_error(error: &RawValue) -> bool {
    !matches!(error.get(), "{}" | "[]" | "\"\"" | "false" | "0")
}

/// The codes of a refusal for the request's content; the last four are those of the Responses API (openai-python 3.52,
/// `response_error.py`).
const FILTERED: [&str; 7] = [
    "content_policy_violation",
    "content_filter",
    "moderation_blocked",
    "invalid_prompt",
    "bio_policy",
    "misalignment_policy_violation",
    "image_content_policy_violation",
];

/// The fields of an error of any shape.
#[derive(Debug, Default)]
struct ErrorDetails {
    message: String,
    kind: String,
    code: String,
    param: String,
}

impl ErrorDetails {
    fn read(text: &str) -> Self {
        let Ok(value) = serde_json::from_str::<Value>(text) else {
            // Plain text explains itself; a page does not.
            let message = shortened(text);
            return Self {
                message: if message.starts_with('<') {
                    ""
                } else {
                    message
                }
                .to_owned(),
                ..Self::default()
            };
        };
        let value = match &value {
            Value::Array(list) => list.first().unwrap_or(&Value::Null),
            value => value,
        };
        let error = match value.get("error") {
            Some(error) if !error.is_null() => error,
            _ => value,
        };
        // xAI writes the code beside an error that is a string.
        let field = |name: &str| match error.get(name).or_else(|| value.get(name)) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let message = match error {
            Value::String(text) => text.clone(),
            _ => match field("message") {
                message if message.is_empty() => fastapi_detail(error),
                message => message,
            },
        };
        Self {
            message: shortened(&message).to_owned(),
            kind: field("type"),
            code: field("code"),
            param: field("param"),
        }
    }

    /// Returns whether the code is one of the Responses API about an image of the request (openai-python 3.52,
    /// `response_error.py`).
    fn is_image_error(&self) -> bool {
        let code = self.code.as_str();
        code.contains("image") && !code.ends_with("_error") || code == "image_parse_error"
    }

    fn failure(&self, status: u16, headers: &[Header], body: &str) -> Failure {
        let failure = match self.kind_by_code(status) {
            Some(kind) => Failure {
                retry_after_ms: (kind == FailureKind::Unavailable)
                    .then(|| retry_after_ms(headers))
                    .flatten(),
                ..Failure::new(kind, &self.message)
            },
            None => from_status(status, headers, &self.message),
        };
        self.with_details(failure, body)
    }

    fn with_details(&self, failure: Failure, body: &str) -> Failure {
        failure
            .with_param(&self.param)
            .with_code(&self.code)
            .with_upstream_error(body)
    }

    /// Returns the kind by the code, or by the text if there is no code, if that is more exact than the status.
    fn kind_by_code(&self, status: u16) -> Option<FailureKind> {
        let is = |code: &str| self.code == code || self.kind == code;
        if is("insufficient_quota") {
            // The operator's account is out of credit. The client's limit is not reached, and waiting does not help,
            // but another upstream may serve the request.
            return Some(FailureKind::Unavailable);
        }
        if !(400..500).contains(&status) || matches!(status, 401 | 429) {
            return None;
        }
        let says = |words: &str| self.message.contains(words);
        let is_too_long = [
            "maximum context length",
            "exceeds the context window",
            "has exceeded max_prompt_tokens",
        ];
        if is("context_length_exceeded") || is_too_long.into_iter().any(says) {
            return Some(FailureKind::ContextLength);
        }
        if FILTERED.iter().any(|code| is(code)) {
            return Some(FailureKind::Filtered);
        }
        let says_unknown = says("does not exist") || says("not found");
        if is("model_not_found")
            || is("invalid_model")
            || (status == 404 && says_unknown && self.message.to_lowercase().contains("model"))
        {
            return Some(FailureKind::ModelNotFound);
        }
        None
    }
}

/// Returns FastAPI's `fastapi_detail`: a text, or a list of faults.
fn fastapi_detail(error: &Value) -> String {
    match error.get("detail") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(problems)) => problems
            .iter()
            .filter_map(|problem| problem.get("msg")?.as_str())
            .collect::<Vec<_>>()
            .join("; "),
        _ => String::new(),
    }
}
