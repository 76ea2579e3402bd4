//! `/usage/me` and `/billing`: what callers are shown of their accounts.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;

use super::usage::{self, Balances, UsageError};
use crate::app::App;
use crate::error::ApiError;
use crate::identity::Caller;
use weir_ledger::{AccountId, LedgerError};

/// `GET /usage/me`: what the caller has left and what this cycle has cost, up to a minute late.
pub async fn get_usage(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    let summary = usage::summary(&app, &AccountId(caller.user_id)).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], summary).into_response())
}

/// `POST /billing/sync-balance`: what the caller has left at this moment; the summary is made anew.
pub async fn sync_balance(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<Balances>, ApiError> {
    Ok(Json(usage::sync(&app, &AccountId(caller.user_id)).await?))
}

impl From<UsageError> for ApiError {
    fn from(error: UsageError) -> Self {
        match error {
            UsageError::Database(error) => Self::of_database(&error, "asked for an account"),
            UsageError::Ledger(error @ (LedgerError::Late | LedgerError::Unavailable)) => {
                tracing::error!(%error, "beginning a period");
                Self::store_unavailable()
            }
            error @ (UsageError::Ledger(_) | UsageError::UnknownUser) => {
                tracing::error!(%error, "reporting on an account");
                Self::internal()
            }
        }
    }
}
