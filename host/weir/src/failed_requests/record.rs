//! A failed request, and its limits.

use weir_storage::clock::Millis;

/// Days for which failures are stored.
pub const KEPT_DAYS: i64 = 30;

/// Stored failures of an account and hour.
pub(super) const MOST_AN_HOUR: u32 = 600;

/// A model request of a known account that ended in an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRequest {
    /// The request's id.
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
    /// Attempts at providers.
    pub attempts: i64,
    /// The trace.
    pub trace_id: Option<String>,
}
