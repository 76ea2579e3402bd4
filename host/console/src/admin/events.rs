//! `/admin/audit`: security events, newest first.

use axum::extract::State;
use axum::response::Response;
use futures_util::FutureExt as _;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_accounts::billing::history::{DAY_MS, check_span, moment};
use weir_errors::ApiError;
use weir_identity::admin::AdminCaller;
use weir_request::audit::log::{self, AuditEventFilter, StoredAuditEvent};
use weir_request::csv_export::{CsvTable, ListPage};
use weir_request::node::Core;
use weir_request::query::{ListQuery, cut};
use weir_request::schemas::parameters::Limit;

/// A security event.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditItem {
    /// The event's number, in the order in which weir wrote the events. weir writes a series of repeated events up to
    /// ten minutes late.
    pub number: i64,
    /// The time of the first occurrence.
    pub at: String,
    /// The number of occurrences within a second, or within ten minutes for events that strangers can repeat.
    pub count: i64,
    /// The event's kind, e.g. `api_key.revoked`.
    pub kind: String,
    /// The actor: `user:ID`, `service:E-MAIL`, `issuer:URL` or `local:UID`; null if unknown.
    pub actor: Option<String>,
    /// The method of the authentication attempt.
    pub method: Option<String>,
    /// Details: a reason, the plan, the credits.
    pub reason: Option<String>,
    /// The affected user.
    pub user_id: Option<String>,
    /// The affected key.
    pub key_id: Option<String>,
}

/// A page of security events.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    /// Events, newest first, by `at`.
    pub events: Vec<AuditItem>,
    /// The `before` of the next page; null on the last page.
    pub next: Option<String>,
}

/// `GET /admin/audit`: security events, optionally filtered by `kind`, `user_id`, `actor` and time. With
/// `changes=true`, the changes of users, keys, credits, the catalog, plugins and the configuration in one list.
#[utoipa::path(
    get, path = "/admin/audit", tag = "administration", operation_id = "list_audit_events",
    params(
        Limit,
        ("before" = Option<i64>, Query, description = "The `next` of the previous page.", minimum = 0, maximum = 9223372036854775807_i64, nullable = false),
        ("kind" = Option<String>, Query, description = "Only events of this kind, such as `api_key.revoked`.", nullable = false),
        ("user_id" = Option<String>, Query, description = "Only events about this user.", nullable = false),
        ("actor" = Option<String>, Query, description = "Only events by this actor.", nullable = false),
        ("changes" = Option<String>, Query, description = "With `true`, only changes: of users, keys, credits, the catalog, plugins and the configuration.", pattern = "^true$", nullable = false),
        ("from" = Option<String>, Query, description = "First day in UTC, or first moment, such as `2026-01-31T12:00:00Z`.", format = Date, nullable = false),
        ("to" = Option<String>, Query, description = "Last day in UTC, or last moment.", format = Date, nullable = false),
    ),
    responses((status = 200, content((AuditList = "application/json"), (String = "text/csv")))),
)]
pub async fn list_events(
    State(core): State<Core>,
    admin: AdminCaller,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let (reader, account) = (core.clone(), admin.actor.as_str());
    TABLE
        .respond(
            &core.exports,
            account,
            &headers,
            query,
            reader,
            |core, query| list(core, query).boxed(),
        )
        .await
}

const TABLE: CsvTable = CsvTable {
    file: "audit.csv",
    columns: "number,at,count,kind,actor,method,reason,user_id,key_id",
    position: "before",
};

impl ListPage for AuditList {
    type Item = AuditItem;

    fn into_items(self) -> (Vec<AuditItem>, Option<String>) {
        (self.events, self.next)
    }
}

/// Returns the page of a query.
pub async fn list(core: &Core, mut query: ListQuery) -> Result<AuditList, ApiError> {
    let limit = query.limit()?;
    let filter = AuditEventFilter {
        kind: query.text("kind")?,
        user_id: query.text("user_id")?,
        actor: query.text("actor")?,
        changes_only: changes_only(&mut query)?,
        from: moment(&mut query, "from", 0)?,
        to: moment(&mut query, "to", DAY_MS)?,
        before: query.number("before")?,
    };
    query.finish()?;
    check_span(filter.from, filter.to)?;
    // The list includes events that are not written yet.
    core.audit.flush().await;
    let mut events = log::list(&core.database, &filter, limit + 1)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked for security events"))?;
    let next = cut(&mut events, limit, |event| event.number.to_string());
    let events = events.into_iter().map(item).collect();
    Ok(AuditList { events, next })
}

fn changes_only(query: &mut ListQuery) -> Result<bool, ApiError> {
    match query.text("changes")?.as_deref() {
        None => Ok(false),
        Some("true") => Ok(true),
        Some(_) => {
            let what = "The value must be true; without it, the list has all events.";
            Err(ApiError::invalid_request("changes", what))
        }
    }
}

fn item(event: StoredAuditEvent) -> AuditItem {
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
