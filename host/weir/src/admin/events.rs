//! `/admin/audit`: security events, the newest first.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::ApiError;

use crate::audit::log::{self, EventFilter, KeptEvent};
use crate::identity::admin::AdminCaller;
use crate::node::Core;
use crate::query::{ListQuery, cut};
use crate::schemas::parameters::Limit;

/// A security event.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditItem {
    /// Its number, in the order in which events were written. A row of repeated events is written up to ten minutes late.
    pub number: i64,
    /// When it happened first.
    pub at: String,
    /// How often, within a second from then on, or ten minutes where anybody can repeat it.
    pub count: i64,
    /// What happened, e.g. `api_key.revoked`.
    pub kind: String,
    /// Who brought it about: `user:ID`, `service:E-MAIL` or `local:UID`; null where that is not known.
    pub actor: Option<String>,
    /// How somebody tried to prove who they are.
    pub method: Option<String>,
    /// More of it: a reason, the plan, the credits.
    pub reason: Option<String>,
    /// The user whom it is about.
    pub user_id: Option<String>,
    /// The key that it is about.
    pub key_id: Option<String>,
}

/// A part of all events.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    /// The newest first, by `at`.
    pub events: Vec<AuditItem>,
    /// The `before` of the next part; null if this is the last.
    pub next: Option<String>,
}

/// `GET /admin/audit`: all events, or those that `kind`, `user_id` and `actor` say.
#[utoipa::path(
    get, path = "/admin/audit", tag = "administration", security(("admin" = [])), operation_id = "list_audit_events",
    params(
        Limit,
        ("before" = Option<i64>, Query, description = "The `next` of the part before.", minimum = 0, maximum = 9223372036854775807_i64, nullable = false),
        ("kind" = Option<String>, Query, description = "Of this kind, such as `api_key.revoked`.", nullable = false),
        ("user_id" = Option<String>, Query, description = "About this user.", nullable = false),
        ("actor" = Option<String>, Query, description = "Brought about by them.", nullable = false),
    ),
    responses((status = 200, body = AuditList)),
)]
pub async fn list_events(
    State(core): State<Core>,
    _: AdminCaller,
    mut query: ListQuery,
) -> Result<Json<AuditList>, ApiError> {
    let limit = query.limit()?;
    let filter = EventFilter {
        kind: query.text("kind")?,
        user_id: query.text("user_id")?,
        actor: query.text("actor")?,
        before: query.number("before")?,
    };
    query.finish()?;
    // What has just been done is to be seen.
    core.audit.flush().await;
    let mut events = log::list(&core.database, &filter, limit + 1)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked for security events"))?;
    let next = cut(&mut events, limit, |event| event.number.to_string());
    let events = events.into_iter().map(item).collect();
    Ok(Json(AuditList { events, next }))
}

fn item(event: KeptEvent) -> AuditItem {
    AuditItem {
        number: event.number,
        at: event.at.iso(),
        count: event.count,
        kind: event.kind,
        actor: event.actor,
        method: event.method,
        reason: event.reason,
        user_id: event.user_id,
        key_id: event.key_id,
    }
}
