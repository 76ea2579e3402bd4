//! Errors that several files of this folder return.

use std::time::Duration;

use weir_errors::{ApiError, ErrorCode};
use weir_storage::expiring::ExpiringError;

pub fn no_such_key() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "No key has this id.").with_param("key_id")
}

pub fn store_failed(error: sqlx::Error) -> ApiError {
    lookup_failed(&error)
}

pub(super) fn lookup_failed(error: &sqlx::Error) -> ApiError {
    ApiError::of_database(error, "asked about a caller")
}

/// The store of sessions and links is unavailable.
pub(super) fn sessions_failed(error: ExpiringError) -> ApiError {
    match error {
        ExpiringError::Cache(_) => {
            ApiError::cache_unavailable("weir could not check the session; retry later.")
        }
        ExpiringError::Database(error) => {
            ApiError::of_database(&error, "reading a session of the console")
        }
    }
}

pub(super) fn locked_out(left: Duration) -> ApiError {
    ApiError::new(
        ErrorCode::LockedOut,
        "Too many failed attempts from this address; the Retry-After header says when to try again.",
    )
    .with_retry_after(left)
}

/// 403: the user is authenticated but disabled.
pub(super) fn user_disabled() -> ApiError {
    ApiError::new(
        ErrorCode::UserDisabled,
        "This user is disabled; contact the operator of this gateway.",
    )
    .with_no_retry()
}

pub(super) fn not_on_all_nodes() -> ApiError {
    ApiError::cache_unavailable("weir could not change the user on all nodes; retry later.")
}
