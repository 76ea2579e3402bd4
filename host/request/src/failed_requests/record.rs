//! A failed request, and its limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_sandbox::printable;
use weir_storage::clock::Millis;
use weir_upstream::redact::redact_shapes;

/// Days for which failures are stored.
pub const KEPT_DAYS: i64 = 30;

/// Stored failures of an account and minute.
pub(super) const MOST_A_MINUTE: u32 = 20;

/// Attempts of a failure: the last ones.
const MOST_ATTEMPTS: usize = 8;

/// Maximum bytes of a provider's text.
pub const TEXT_BYTES: usize = 1_000;

/// Maximum bytes of weir's message, and of the path of a field.
const MESSAGE_BYTES: usize = 500;
const PARAM_BYTES: usize = 200;

/// A model request of a known account that ended in an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRequest {
    pub request_id: String,
    /// The time of its end.
    pub at: Millis,
    /// The account that would have paid.
    pub account_id: String,
    /// The person or the service account that sent it.
    pub user_id: String,
    /// The API key, by its id.
    pub key_id: Option<String>,
    /// The key's project.
    pub project_id: Option<String>,
    /// The model, by its id in the catalog; `None` if it is unknown.
    pub model: Option<String>,
    /// The provider of the last attempt.
    pub provider: Option<String>,
    /// The digest of the component of the last attempt.
    pub adapter_digest: Option<String>,
    /// The providers of earlier attempts.
    pub earlier_providers: Vec<String>,
    /// The error's code.
    pub code: String,
    /// The response's status; `None` if the client had disconnected.
    pub status: Option<i64>,
    /// The time from the request to its end.
    pub latency_ms: i64,
    pub attempts: i64,
    pub trace_id: Option<String>,
    pub error: AccountError,
    /// The failed attempts at providers, for operators: the last ones.
    pub failed_attempts: Vec<FailedAttempt>,
}

/// The part of an error that its account sees beside the code. It has no text of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountError {
    /// The path of the wrong field, if one is wrong.
    pub param: Option<String>,
    /// weir's message.
    pub message: Option<String>,
    /// The budget or the limit that was reached.
    pub limit: Option<String>,
}

/// A failed attempt at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailedAttempt {
    /// The provider.
    pub provider: String,
    /// The number of the credential among those of the provider, from 1; null without one.
    pub credential: Option<u32>,
    /// The HTTP status of the provider's response; null without one.
    pub status: Option<u16>,
    /// The kind of the failure, such as `rate_limited` or `connect`.
    pub error: String,
    /// The provider's text: its beginning, without credentials.
    pub text: Option<String>,
}

impl AccountError {
    /// Returns the parts of an error that weir records.
    pub fn of(error: &ApiError) -> Self {
        Self {
            param: error.param().map(|param| printable(param, PARAM_BYTES)),
            message: Some(printable(error.own_message(), MESSAGE_BYTES)),
            limit: limit_of(error),
        }
    }

    /// The error of a response whose client disconnected.
    pub fn disconnected() -> Self {
        let message = "The client disconnected before the end of the response.";
        Self {
            message: Some(message.to_owned()),
            ..Self::default()
        }
    }
}

impl FailedRequest {
    /// Adds an attempt to the last ones.
    pub fn push_attempt(attempts: &mut Vec<FailedAttempt>, attempt: FailedAttempt) {
        if attempts.len() == MOST_ATTEMPTS {
            attempts.remove(0);
        }
        attempts.push(attempt);
    }

    /// Replaces credentials in all texts of strangers.
    pub(super) fn redact(&mut self) {
        let AccountError {
            param,
            message,
            limit: _,
        } = &mut self.error;
        let texts = self.failed_attempts.iter_mut();
        let texts = texts.filter_map(|attempt| attempt.text.as_mut());
        texts.chain(param).chain(message).for_each(redact_shapes);
    }

    /// The approximate bytes of its texts.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.failed_attempts.iter().map(|attempt| &attempt.text);
        let texts = texts.chain([&self.error.param, &self.error.message]);
        500 + texts.flatten().map(String::len).sum::<usize>()
    }
}

/// Returns the budget or the limit that an error names.
fn limit_of(error: &ApiError) -> Option<String> {
    let detail = |name| error.detail(name).and_then(|value| value.as_str());
    let is = |code: ErrorCode| error.code() == code.as_str();
    if let (Some(of), Some(window)) = (detail("budget_of"), detail("window")) {
        return Some(format!("budget/{of}/{window}"));
    }
    if let (Some(of), Some(unit)) = (detail("rate_of"), detail("unit")) {
        return Some(format!("rate/{of}/{unit}"));
    }
    let limit = if is(ErrorCode::RateLimited) {
        "rate/account/requests"
    } else if is(ErrorCode::QuotaExceeded) || is(ErrorCode::InsufficientCredits) {
        "credits"
    } else if is(ErrorCode::TooManyAtOnce) {
        "concurrency"
    } else {
        return None;
    };
    Some(limit.to_owned())
}
