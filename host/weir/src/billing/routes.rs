//! `/usage` and `/billing`: what callers are shown of their accounts.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use weir_errors::ApiError;

use super::export::Export;
use super::history::{Asked, RequestItem, RequestList};
use super::statement::TransactionList;
use super::usage::{self, Balances, UsageError};
use crate::app::App;
use crate::identity::Caller;
use crate::openapi::bodies::UsageAnswer;
use crate::query::ListQuery;
use crate::schemas::parameters::{CalendarMonth, Days, Limit};
use weir_ledger::{AccountId, LedgerError};

/// `GET /usage/me`: what the caller has left and what this cycle has cost, up to a minute late. With a `group`, what they
/// have used from one day to another, as of now.
#[utoipa::path(
    get, path = "/usage/me", tag = "usage", security(("user" = [])),
    params(
        ("group" = Option<String>, Query, description = "Tells it apart by `key`, `model` or `day`.", nullable = false, pattern = "^(key|model|day)$"),
        Days,
    ),
    responses((status = 200, content((UsageAnswer = "application/json"), (String = "text/csv")))),
)]
pub async fn get_usage(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    if query.has_any(&["group", "from", "to"]) {
        let group = query.text("group")?;
        return asked(&app, caller).usage(group, &headers, query).await;
    }
    let summary = usage::summary(&app, &AccountId(caller.user_id)).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], summary).into_response())
}

/// `GET /usage/export`: what a month has cost the caller, for other tools.
#[utoipa::path(
    get, path = "/usage/export", tag = "usage", security(("user" = [])),
    params(
        CalendarMonth,
        ("format" = Option<String>, Query, description = "The columns.", nullable = false, pattern = "^focus$"),
    ),
    responses((status = 200, body = String, content_type = "text/csv")),
)]
pub async fn export_usage(
    State(app): State<App>,
    caller: Caller,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let export = Export {
        database: app.database.clone(),
        account: Some(AccountId(caller.user_id)),
        now: app.ledger.now(),
    };
    export.answer(&app.exports, query).await
}

/// `GET /usage/requests`: the caller's requests that have ended, the last one first, as JSON or CSV.
#[utoipa::path(
    get, path = "/usage/requests", tag = "usage", security(("user" = [])),
    params(
        Limit,
        ("before" = Option<i64>, Query, description = "The `next` of the part before: what follows is older.", minimum = 0, maximum = 9_223_372_036_854_775_807_i64, nullable = false),
        ("key" = Option<String>, Query, description = "With this key: its id.", nullable = false),
        ("model" = Option<String>, Query, description = "Of this model.", nullable = false),
        ("from" = Option<String>, Query, description = "From this day on, in UTC; or from a moment, such as `2026-01-31T12:00:00Z`.", format = Date, nullable = false),
        ("to" = Option<String>, Query, description = "Until this day, or a moment.", format = Date, nullable = false),
    ),
    responses((status = 200, content((RequestList = "application/json"), (String = "text/csv")))),
)]
pub async fn list_requests(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = asked(&app, caller);
    asked.requests(&app.exports, &headers, query).await
}

/// `GET /usage/requests/{request_id}`: one of them.
#[utoipa::path(
    get, path = "/usage/requests/{request_id}", tag = "usage", security(("user" = [])),
    params(("request_id" = String, Path, description = "The request's id.")),
    responses(
        (status = 200, body = RequestItem),
        (status = 404, description = "`UNKNOWN_REQUEST`: there is no such request of yours that has ended."),
    ),
)]
pub async fn get_request(
    State(app): State<App>,
    caller: Caller,
    Path(request_id): Path<String>,
) -> Result<Json<RequestItem>, ApiError> {
    asked(&app, caller).request(&request_id).await.map(Json)
}

/// `GET /billing/transactions`: what has changed the caller's credits, the last one first, as JSON or CSV.
#[utoipa::path(
    get, path = "/billing/transactions", tag = "billing", security(("user" = [])),
    params(
        Limit,
        ("before" = Option<String>, Query, description = "The `next` of the part before: what follows is older.", nullable = false),
        ("from" = Option<String>, Query, description = "From this day on, in UTC; or from a moment, such as `2026-01-31T12:00:00Z`.", format = Date, nullable = false),
        ("to" = Option<String>, Query, description = "Until this day, or a moment.", format = Date, nullable = false),
    ),
    responses(
        (status = 200, content((TransactionList = "application/json"), (String = "text/csv"))),
    ),
)]
pub async fn list_transactions(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = asked(&app, caller);
    asked.transactions(&app.exports, &headers, query).await
}

fn asked(app: &App, caller: Caller) -> Asked<'_> {
    Asked {
        database: &app.database,
        account: AccountId(caller.user_id),
        now: app.ledger.now(),
    }
}

/// `POST /billing/sync-balance`: what the caller has left at this moment; the summary is made anew.
#[utoipa::path(
    post, path = "/billing/sync-balance", tag = "billing", security(("user" = [])),
    responses((status = 200, body = Balances)),
)]
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
