//! The errors of calls into an exchange.

use super::bindings::adapter::{Failure, FailureKind};
use crate::guest::GuestError;
use crate::printable::printable;

/// The reason that a call into an exchange has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AdapterCallError {
    /// The guest was stopped.
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error("{}", printable(&.0.text, 200))]
    Failure(Failure),
}

/// The failure of an adapter without a capability.
pub(super) fn incapable(capability: &str) -> AdapterCallError {
    AdapterCallError::Failure(Failure {
        kind: FailureKind::Unsupported,
        text: format!("{capability}: the adapter does not have this capability"),
        param: Some("model".into()),
        retry_after_ms: None,
        code: None,
        upstream_error: None,
    })
}
