//! Events of slots.

use sqlx::{AssertSqlSafe, Row};
use weir_storage::Database;
use weir_storage::clock::Millis;

/// A row of `plugin_events`.
#[derive(Debug)]
pub(crate) struct EventRow {
    pub at: Millis,
    pub slot: String,
    pub kind: String,
    pub digest: Option<String>,
    pub previous_digest: Option<String>,
    pub actor: String,
    pub detail: Option<String>,
}

/// Returns the latest events of one slot or of all, the newest first.
pub(crate) async fn events(
    database: &Database,
    slot: Option<&str>,
    limit: u32,
) -> sqlx::Result<Vec<EventRow>> {
    const COLUMNS: &str = "at, slot, kind, digest, previous_digest, actor, detail";
    let rows = match slot {
        Some(slot) => {
            let text = format!(
                "SELECT {COLUMNS} FROM plugin_events WHERE slot = $1 ORDER BY number DESC LIMIT $2"
            );
            sqlx::query(AssertSqlSafe(text))
                .bind(slot)
                .bind(i64::from(limit))
                .fetch_all(database.reader())
                .await?
        }
        None => {
            let text = format!("SELECT {COLUMNS} FROM plugin_events ORDER BY number DESC LIMIT $1");
            sqlx::query(AssertSqlSafe(text))
                .bind(i64::from(limit))
                .fetch_all(database.reader())
                .await?
        }
    };
    rows.iter()
        .map(|row| {
            Ok(EventRow {
                at: Millis(row.try_get("at")?),
                slot: row.try_get("slot")?,
                kind: row.try_get("kind")?,
                digest: row.try_get("digest")?,
                previous_digest: row.try_get("previous_digest")?,
                actor: row.try_get("actor")?,
                detail: row.try_get("detail")?,
            })
        })
        .collect()
}
