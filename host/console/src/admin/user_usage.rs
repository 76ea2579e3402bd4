//! `/admin/users/{user_id}/usage` and `…/transactions`: a user's usage and statement, as the user sees them.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use weir_accounts::billing::BillingParts;
use weir_accounts::billing::export::Export;
use weir_accounts::billing::history::{RequestItem, RequestList, UsageQuery, UsageReport};
use weir_accounts::billing::statement::TransactionList;
use weir_errors::ApiError;
use weir_identity::admin::AdminCaller;
use weir_identity::directory;
use weir_ledger::AccountId;
use weir_request::node::Core;
use weir_request::query::ListQuery;
use weir_request::schemas::parameters::{CalendarMonth, Days, Limit};

use super::users::unknown_user;

/// `GET /admin/users/{user_id}/usage`: a user's usage, by model or by the dimension in `group`.
#[utoipa::path(
    get, path = "/admin/users/{user_id}/usage", tag = "administration",
    params(
        ("user_id" = String, Path, description = "The user's id."),
        ("group" = Option<String>, Query, description = "Groups usage by `key`, `model` or `day`.", nullable = false, pattern = "^(key|model|day)$"),
        Days,
    ),
    responses(
        (status = 200, content((UsageReport = "application/json"), (String = "text/csv"))),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
    ),
)]
pub async fn get_user_usage(
    State(core): State<Core>,
    _: AdminCaller,
    Path(user_id): Path<String>,
    headers: HeaderMap,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    let group = query.text("group")?.or_else(|| Some("model".to_owned()));
    let asked = asked(&core, user_id).await?;
    asked.usage(group, &headers, query).await
}

/// `GET /admin/users/{user_id}/usage/requests`: a user's requests, the last to end first.
#[utoipa::path(
    get, path = "/admin/users/{user_id}/usage/requests", tag = "administration",
    params(
        ("user_id" = String, Path, description = "The user's id."),
        Limit,
        ("before" = Option<String>, Query, description = "The `next` of the previous page; this page has older items.", pattern = r"^[0-9]{1,18}(\.[a-z0-9_]{0,64})?$", nullable = false),
        ("status" = Option<String>, Query, description = "With `failed`, only requests with the record of an error, also those without a charge: for 30 days, at most 20 a minute.", pattern = "^failed$", nullable = false),
        ("key" = Option<String>, Query, description = "Only requests with this key, by its id.", nullable = false),
        ("model" = Option<String>, Query, description = "Only requests of this model.", nullable = false),
        ("from" = Option<String>, Query, description = "First day in UTC, or first moment, such as `2026-01-31T12:00:00Z`.", format = Date, nullable = false),
        ("to" = Option<String>, Query, description = "Last day in UTC, or last moment.", format = Date, nullable = false),
    ),
    responses(
        (status = 200, content((RequestList = "application/json"), (String = "text/csv"))),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
    ),
)]
pub async fn list_user_requests(
    State(core): State<Core>,
    State(billing): State<BillingParts>,
    _: AdminCaller,
    Path(user_id): Path<String>,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = asked(&core, user_id).await?;
    asked
        .requests(&billing.failures, &core.exports, &headers, query)
        .await
}

/// `GET /admin/usage/export`: all users' charges and the operator's costs in a month, for other tools.
#[utoipa::path(
    get, path = "/admin/usage/export", tag = "administration", operation_id = "admin_export_usage",
    params(
        CalendarMonth,
        ("format" = Option<String>, Query, description = "The columns.", nullable = false, pattern = "^focus$"),
    ),
    responses((status = 200, body = String, content_type = "text/csv")),
)]
pub async fn export_usage(
    State(core): State<Core>,
    _: AdminCaller,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let export = Export {
        database: core.database.clone(),
        account: None,
        now: core.clock.now(),
    };
    export.answer(&core.exports, query).await
}

/// `GET /admin/users/{user_id}/usage/requests/{request_id}`: a user's request.
#[utoipa::path(
    get, path = "/admin/users/{user_id}/usage/requests/{request_id}", tag = "administration",
    params(
        ("user_id" = String, Path, description = "The user's id."),
        ("request_id" = String, Path, description = "The request's id."),
    ),
    responses(
        (status = 200, body = RequestItem),
        (status = 404, description = "`UNKNOWN_REQUEST`: the user or the request does not exist."),
    ),
)]
pub async fn get_user_request(
    State(core): State<Core>,
    State(billing): State<BillingParts>,
    _: AdminCaller,
    Path((user_id, request_id)): Path<(String, String)>,
) -> Result<Json<RequestItem>, ApiError> {
    let asked = asked(&core, user_id).await?;
    asked
        .request(&billing.failures, &request_id)
        .await
        .map(Json)
}

/// `GET /admin/users/{user_id}/transactions`: the changes of a user's credits, the last one first.
#[utoipa::path(
    get, path = "/admin/users/{user_id}/transactions", tag = "administration",
    params(
        ("user_id" = String, Path, description = "The user's id."),
        Limit,
        ("before" = Option<String>, Query, description = "The `next` of the previous page; this page has older items.", nullable = false),
        ("from" = Option<String>, Query, description = "First day in UTC, or first moment, such as `2026-01-31T12:00:00Z`.", format = Date, nullable = false),
        ("to" = Option<String>, Query, description = "Last day in UTC, or last moment.", format = Date, nullable = false),
    ),
    responses(
        (status = 200, content((TransactionList = "application/json"), (String = "text/csv"))),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
    ),
)]
pub async fn list_user_transactions(
    State(core): State<Core>,
    _: AdminCaller,
    Path(user_id): Path<String>,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = asked(&core, user_id).await?;
    asked.transactions(&core.exports, &headers, query).await
}

async fn asked(core: &Core, user_id: String) -> Result<UsageQuery<'_>, ApiError> {
    // PostgreSQL rejects control characters in a text, and no id contains any.
    let found = match user_id.contains(char::is_control) {
        true => None,
        false => directory::find_user(&core.database, &user_id)
            .await
            .map_err(|error| ApiError::of_database(&error, "asked for a user"))?,
    };
    if found.is_none() {
        return Err(unknown_user(&user_id));
    }
    Ok(UsageQuery {
        database: &core.database,
        account: AccountId(user_id),
        now: core.clock.now(),
    })
}
