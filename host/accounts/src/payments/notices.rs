//! `GET /billing/notices`.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_identity::Caller;
use weir_payments::notices::{self, StoredNotice};
use weir_request::node::Core;
use weir_request::query::{ListQuery, cut};
use weir_request::schemas::parameters::Limit;
use weir_storage::Database;

/// A notice to a user.
#[derive(Debug, Serialize, ToSchema)]
pub struct NoticeItem {
    /// Its id, which is unique.
    pub id: String,
    /// Its type, for example `low_balance`.
    pub kind: String,
    /// Details.
    #[schema(value_type = Object)]
    pub data: Value,
    /// The time of its cause.
    pub created_at: String,
}

/// Notices of a user.
#[derive(Debug, Serialize, ToSchema)]
pub struct NoticeList {
    /// The notices, newest first.
    pub notices: Vec<NoticeItem>,
    /// The `before` of the next page; null on the last page.
    pub next: Option<String>,
}

/// `GET /billing/notices`: the caller's notices, newest first.
#[utoipa::path(
    get, path = "/billing/notices", tag = "billing",
    params(Limit,
        ("before" = Option<String>, Query, description = "The `next` of the previous page.", nullable = false)),
    responses((status = 200, body = NoticeList)),
)]
pub async fn list_notices(
    State(core): State<Core>,
    caller: Caller,
    query: ListQuery,
) -> Result<Json<NoticeList>, ApiError> {
    list(&core.database, &caller.account.0, query)
        .await
        .map(Json)
}

/// A page of a user's notices.
pub async fn list(
    database: &Database,
    user_id: &str,
    mut query: ListQuery,
) -> Result<NoticeList, ApiError> {
    let limit = query.limit()?;
    let before = query.text("before")?;
    query.finish()?;
    let found = notices::list(database, user_id, before.as_deref(), limit + 1)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked for notices"))?;
    let what = "It is the `next` of the part before.";
    let mut found = found.ok_or_else(|| ApiError::invalid_request("before", what))?;
    let next = cut(&mut found, limit, |notice| notice.id.clone());
    Ok(NoticeList {
        notices: found.into_iter().map(NoticeItem::from).collect(),
        next,
    })
}

impl From<StoredNotice> for NoticeItem {
    fn from(notice: StoredNotice) -> Self {
        Self {
            id: notice.id,
            kind: notice.kind,
            data: notice.data,
            created_at: notice.created_at.iso(),
        }
    }
}
