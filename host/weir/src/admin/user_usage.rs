//! `/admin/users/{user_id}/usage` and `…/transactions`: what a user has used, and what has changed their credits, as they are shown it themselves.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use weir_ledger::AccountId;

use super::AdminCaller;
use super::users::unknown_user;
use crate::app::Core;
use crate::billing::export::Export;
use crate::billing::history::{Asked, RequestItem};
use crate::error::ApiError;
use crate::identity::directory;
use crate::query::ListQuery;

/// `GET /admin/users/{user_id}/usage`: what a user has used, by model or by what `group` says.
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
pub async fn list_user_requests(
    State(core): State<Core>,
    _: AdminCaller,
    Path(user_id): Path<String>,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = asked(&core, user_id).await?;
    asked.requests(&headers, query).await
}

/// `GET /admin/usage/export`: what a month has cost all users, and the operator, for other tools.
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
    export.answer(query)
}

/// `GET /admin/users/{user_id}/usage/requests/{request_id}`: one of them.
pub async fn get_user_request(
    State(core): State<Core>,
    _: AdminCaller,
    Path((user_id, request_id)): Path<(String, String)>,
) -> Result<Json<RequestItem>, ApiError> {
    let asked = asked(&core, user_id).await?;
    asked.request(&request_id).await.map(Json)
}

/// `GET /admin/users/{user_id}/transactions`: what has changed a user's credits, the last one first.
pub async fn list_user_transactions(
    State(core): State<Core>,
    _: AdminCaller,
    Path(user_id): Path<String>,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = asked(&core, user_id).await?;
    asked.transactions(&headers, query).await
}

async fn asked(core: &Core, user_id: String) -> Result<Asked<'_>, ApiError> {
    // What no id has in it, PostgreSQL would not take.
    let found = match user_id.contains(char::is_control) {
        true => None,
        false => directory::find_user(&core.database, &user_id)
            .await
            .map_err(|error| ApiError::of_database(&error, "asked for a user"))?,
    };
    if found.is_none() {
        return Err(unknown_user(&user_id));
    }
    Ok(Asked {
        database: &core.database,
        account: AccountId(user_id),
        now: core.clock.now(),
    })
}
