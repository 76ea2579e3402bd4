//! Reading the events that are kept, the newest first by the time at which they happened.

use sqlx::{AssertSqlSafe, Row};
use weir_storage::Database;
use weir_storage::clock::Millis;

/// An event as it was kept.
#[derive(Debug, Clone)]
pub struct KeptEvent {
    /// Its number, in the order in which events were written.
    pub number: i64,
    /// When it happened first.
    pub at: Millis,
    /// How often, within a second from then on, or ten minutes where anybody can repeat it.
    pub count: i64,
    /// What happened, e.g. `api_key.revoked`.
    pub kind: String,
    /// Who brought it about, where that is known.
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

/// Which events; where a field is `None`, whatever they have there.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// What happened.
    pub kind: Option<String>,
    /// The user whom it is about.
    pub user_id: Option<String>,
    /// Who brought it about.
    pub actor: Option<String>,
    /// Those before the one of this number.
    pub before: Option<i64>,
}

/// The latest events that fit, so many at most.
pub async fn list(
    database: &Database,
    filter: &EventFilter,
    limit: u32,
) -> sqlx::Result<Vec<KeptEvent>> {
    let mut snapshot = database.snapshot().await?;
    // Rows of repeated events are written up to ten minutes late, so that numbers are not in the order of time.
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
    // A condition that may be absent would use no index. Each parameter appears in either case.
    let sql = format!(
        "SELECT number, at, count, kind, actor, method, reason, user_id, key_id FROM audit_events \
         WHERE (at, number) < ($6, $1) AND {} AND {} AND {} \
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
        }
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(filter.before.unwrap_or(i64::MAX))
        .bind(filter.kind.as_deref())
        .bind(filter.user_id.as_deref())
        .bind(filter.actor.as_deref())
        .bind(i64::from(limit))
        .bind(before)
        .fetch_all(&mut *snapshot)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(KeptEvent {
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
