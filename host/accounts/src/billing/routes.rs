//! `/usage` and `/billing`: callers' own accounts.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRef, Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use serde::Serialize;
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::roles::Permission;
use weir_identity::{Caller, IdentityParts, handlers};
use weir_ledger::LedgerError;
use weir_request::audit::Actor;
use weir_request::query::ListQuery;
use weir_request::schemas::parameters::{CalendarMonth, Days, Limit};

use super::BillingParts;
use super::content::{self, ContentViewer, RequestContent};
use super::export::Export;
use super::history::{RequestItem, RequestList, UsageQuery, UsageReport};
use super::statement::TransactionList;
use super::usage::{self, Balances, UsageError, UsageSummary};

/// Returns the endpoints of usage and balances.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    BillingParts: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
{
    Endpoints::new()
        .row(
            Access::User(Permission::ReadUsage),
            handlers!(export_usage, list_requests, get_request, list_transactions),
        )
        .row(
            Access::User(Permission::Belong),
            handlers!(get_usage, sync_balance),
        )
        // The handler shows own requests, and those of others with `Manage`.
        .row(
            Access::User(Permission::Belong),
            handlers!(get_request_content),
        )
}

/// `GET /usage/me`: the caller's remaining credits and this cycle's usage, up to a minute old. With a `group`, the
/// exact usage between two days.
#[utoipa::path(
    get, path = "/usage/me", tag = "usage",
    params(
        ("group" = Option<String>, Query, description = "Groups usage by `key`, `model` or `day`.", nullable = false, pattern = "^(key|model|day)$"),
        Days,
    ),
    responses((status = 200, content((UsageAnswer = "application/json"), (String = "text/csv")))),
)]
pub async fn get_usage(
    State(billing): State<BillingParts>,
    caller: Caller,
    headers: HeaderMap,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    if query.has_any(&["group", "from", "to"]) {
        let group = query.text("group")?;
        return asked(&billing, caller).usage(group, &headers, query).await;
    }
    let summary = usage::summary(&billing, &caller.account).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], summary).into_response())
}

/// `GET /usage/export`: the caller's charges in a month, for other tools.
#[utoipa::path(
    get, path = "/usage/export", tag = "usage",
    params(
        CalendarMonth,
        ("format" = Option<String>, Query, description = "The columns.", nullable = false, pattern = "^focus$"),
    ),
    responses((status = 200, body = String, content_type = "text/csv")),
)]
pub async fn export_usage(
    State(billing): State<BillingParts>,
    caller: Caller,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let export = Export {
        database: billing.database.clone(),
        account: Some(caller.account),
        now: billing.ledger.now(),
    };
    export.answer(&billing.exports, query).await
}

/// `GET /usage/requests`: the caller's completed requests, the last one first, as JSON or CSV.
#[utoipa::path(
    get, path = "/usage/requests", tag = "usage",
    params(
        Limit,
        ("before" = Option<String>, Query, description = "The `next` of the previous page; this page has older items.", pattern = r"^[0-9]{1,18}(\.[a-z0-9_]{0,64})?$", nullable = false),
        ("status" = Option<String>, Query, description = "With `failed`, only requests with the record of an error, also those without a charge: for 30 days, at most 20 a minute.", pattern = "^failed$", nullable = false),
        ("key" = Option<String>, Query, description = "Only requests with this key, by its id.", nullable = false),
        ("model" = Option<String>, Query, description = "Only requests of this model.", nullable = false),
        ("from" = Option<String>, Query, description = "First day in UTC, or first moment, such as `2026-01-31T12:00:00Z`.", format = Date, nullable = false),
        ("to" = Option<String>, Query, description = "Last day in UTC, or last moment.", format = Date, nullable = false),
    ),
    responses((status = 200, content((RequestList = "application/json"), (String = "text/csv")))),
)]
pub async fn list_requests(
    State(billing): State<BillingParts>,
    caller: Caller,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = asked(&billing, caller);
    asked
        .requests(&billing.failures, &billing.exports, &headers, query)
        .await
}

/// `GET /usage/requests/{request_id}`: a completed request of the caller.
#[utoipa::path(
    get, path = "/usage/requests/{request_id}", tag = "usage",
    params(("request_id" = String, Path, description = "The request's id.")),
    responses(
        (status = 200, body = RequestItem),
        (status = 404, description = "`UNKNOWN_REQUEST`: the caller has no completed request with this id."),
    ),
)]
pub async fn get_request(
    State(billing): State<BillingParts>,
    caller: Caller,
    Path(request_id): Path<String>,
) -> Result<Json<RequestItem>, ApiError> {
    let asked = asked(&billing, caller);
    asked
        .request(&billing.failures, &request_id)
        .await
        .map(Json)
}

/// `GET /usage/requests/{request_id}/content`: the prompt and the response of a request whose key or organisation chose to
/// store them: for the request's user, for a key of its own requests, and for administrators of the organisation.
#[utoipa::path(
    get, path = "/usage/requests/{request_id}/content", tag = "usage",
    params(("request_id" = String, Path, description = "The request's id.")),
    responses(
        (status = 200, body = RequestContent),
        (status = 404, description = "`UNKNOWN_REQUEST`: weir stores no prompt and response with this id for the caller."),
    ),
)]
pub async fn get_request_content(
    State(billing): State<BillingParts>,
    caller: Caller,
    Path(request_id): Path<String>,
) -> Result<Json<RequestContent>, ApiError> {
    let log = billing.content_log.as_deref();
    let viewer = ContentViewer {
        user_id: &caller.user_id,
        account_id: &caller.account.0,
        role: caller.role,
        key_id: caller.key_id(),
    };
    let stored = content::find(log, &viewer, &request_id).await?;
    let actor = Actor::user(&caller.user_id);
    content::view(log, &billing.audit, &actor, stored).map(Json)
}

/// `GET /billing/transactions`: the changes of the caller's credits, the last one first, as JSON or CSV.
#[utoipa::path(
    get, path = "/billing/transactions", tag = "billing",
    params(
        Limit,
        ("before" = Option<String>, Query, description = "The `next` of the previous page; this page has older items.", nullable = false),
        ("from" = Option<String>, Query, description = "First day in UTC, or first moment, such as `2026-01-31T12:00:00Z`.", format = Date, nullable = false),
        ("to" = Option<String>, Query, description = "Last day in UTC, or last moment.", format = Date, nullable = false),
    ),
    responses(
        (status = 200, content((TransactionList = "application/json"), (String = "text/csv"))),
    ),
)]
pub async fn list_transactions(
    State(billing): State<BillingParts>,
    caller: Caller,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = asked(&billing, caller);
    asked.transactions(&billing.exports, &headers, query).await
}

fn asked(billing: &BillingParts, caller: Caller) -> UsageQuery<'_> {
    UsageQuery {
        database: &billing.database,
        account: caller.account,
        now: billing.ledger.now(),
    }
}

/// `POST /billing/sync-balance`: the caller's current balances; weir also renews the summary.
#[utoipa::path(
    post, path = "/billing/sync-balance", tag = "billing",
    responses((status = 200, body = Balances)),
)]
pub async fn sync_balance(
    State(billing): State<BillingParts>,
    caller: Caller,
) -> Result<Json<Balances>, ApiError> {
    Ok(Json(usage::sync(&billing, &caller.account).await?))
}

impl From<UsageError> for ApiError {
    fn from(error: UsageError) -> Self {
        match error {
            UsageError::Database(error) => Self::of_database(&error, "asked for an account"),
            UsageError::Ledger(error @ (LedgerError::Late | LedgerError::Unavailable)) => {
                tracing::error!(%error, "cannot begin a period");
                Self::store_unavailable()
            }
            error @ (UsageError::Ledger(_) | UsageError::UnknownUser) => {
                tracing::error!(%error, "cannot report on an account");
                Self::internal()
            }
        }
    }
}

/// Usage: of the current cycle or, with a `group`, of some days.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum UsageAnswer {
    /// Usage of the current cycle.
    Cycle(UsageSummary),
    /// Usage of some days.
    Days(UsageReport),
}
