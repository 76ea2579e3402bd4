//! Reads stored events, newest first by the time of their occurrence.

use sqlx::{AssertSqlSafe, Row};
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::event::WITHOUT_CHANGE;

#[derive(Debug, Clone)]
pub struct StoredAuditEvent {
    /// The event's number, in the order in which weir wrote the events.
    pub number: i64,
    /// The time of the first occurrence.
    pub at: Millis,
    /// The number of occurrences within a second, or within ten minutes for events that strangers can repeat.
    pub count: i64,
    /// The event's kind, e.g. `api_key.revoked`.
    pub kind: String,
    /// The actor, if known.
    pub actor: Option<String>,
    /// The method of the authentication attempt.
    pub method: Option<String>,
    /// Details: a reason, the plan, the credits.
    pub reason: Option<String>,
    pub user_id: Option<String>,
    pub key_id: Option<String>,
}

/// A filter of events; `None` matches every value.
#[derive(Debug, Clone, Default)]
pub struct AuditEventFilter {
    pub kind: Option<String>,
    pub user_id: Option<String>,
    pub actor: Option<String>,
    /// Only events that change something.
    pub changes_only: bool,
    /// Only events at this moment or later.
    pub from: Option<Millis>,
    /// Only events before this moment.
    pub to: Option<Millis>,
    /// Only events with a lower number.
    pub before: Option<i64>,
}

/// Returns the latest events that match, up to `limit`.
pub async fn list(
    database: &Database,
    filter: &AuditEventFilter,
    limit: u32,
) -> sqlx::Result<Vec<StoredAuditEvent>> {
    let mut snapshot = database.snapshot().await?;
    // Rows of repeated events are written up to ten minutes late, so numbers are not in the order of time.
    let before = match filter.before {
        None => Some(i64::MAX),
        Some(number) => {
            sqlx::query_scalar(
                "SELECT at FROM audit_events WHERE number <= $1 ORDER BY number DESC LIMIT 1",
            )
            .bind(number)
            .fetch_optional(&mut *snapshot)
            .await?
        }
    };
    let Some(before) = before else {
        return Ok(Vec::new());
    };
    let number = filter.before.unwrap_or(i64::MAX);
    // No event has a negative number: with the end of the time, the position is before all events at that moment.
    let (before, number) = match filter.to {
        Some(to) if to.0 <= before => (to.0, -1),
        _ => (before, number),
    };
    // A condition on an absent filter would use no index. Each parameter appears in either case.
    let sql = format!(
        "SELECT number, at, count, kind, actor, method, reason, user_id, key_id FROM audit_events \
         WHERE (at, number) < ($6, $1) AND at >= $7 AND {} AND {} AND {}{} \
         ORDER BY at DESC, number DESC LIMIT $5",
        match filter.kind {
            Some(_) => "kind = $2",
            None => "CAST($2 AS TEXT) IS NULL",
        },
        match filter.user_id {
            Some(_) => "user_id = $3",
            None => "CAST($3 AS TEXT) IS NULL",
        },
        match filter.actor {
            Some(_) => "actor = $4",
            None => "CAST($4 AS TEXT) IS NULL",
        },
        match filter.changes_only {
            true => format!(" AND kind NOT IN ('{}')", WITHOUT_CHANGE.join("', '")),
            false => String::new(),
        }
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(number)
        .bind(filter.kind.as_deref())
        .bind(filter.user_id.as_deref())
        .bind(filter.actor.as_deref())
        .bind(i64::from(limit))
        .bind(before)
        .bind(filter.from.map_or(i64::MIN, |from| from.0))
        .fetch_all(&mut *snapshot)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(StoredAuditEvent {
                number: row.try_get("number")?,
                at: Millis(row.try_get("at")?),
                count: row.try_get("count")?,
                kind: row.try_get("kind")?,
                actor: row.try_get("actor")?,
                method: row.try_get("method")?,
                reason: row.try_get("reason")?,
                user_id: row.try_get("user_id")?,
                key_id: row.try_get("key_id")?,
            })
        })
        .collect()
}
