//! Recordings in the database: the tables `recordings` and `recorded_exchanges`.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};
use weir_storage::clock::Millis;
use weir_storage::sealing::{KeyRing, Purpose};
use weir_storage::{Database, ids};
use weir_upstream::recorded::RecordedExchange;

use super::terms::RecordingTerms;

/// The lifetime of recorded exchanges after the end of the recording.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A recording with less remaining space than this counts as full.
const FULL_BELOW_BYTES: i64 = 4 << 10;

/// The maximum exchanges of a page: each has a MiB and a half at most.
pub const PAGE: i64 = 8;

/// The store of recordings.
pub struct RecordingStore {
    database: Database,
    keys: KeyRing,
}

/// A recording, running or ended.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The slot.
    pub slot: String,
    /// The start.
    pub begun_at: Millis,
    /// The latest end.
    pub until_at: Millis,
    /// The share of exchanges, in parts of ten thousand.
    pub share: u16,
    /// The maximum bytes.
    pub most_bytes: i64,
    /// The bytes so far.
    pub kept_bytes: i64,
    /// The exchanges so far.
    pub exchanges: i64,
    /// The operator who started the recording.
    pub actor: String,
}

/// A stored exchange.
pub struct StoredExchange {
    /// The id, which increases with time.
    pub id: String,
    /// The time of its end.
    pub at: Millis,
    /// The exchange; `None` if its sealing key is gone.
    pub exchange: Option<RecordedExchange>,
}

const COLUMNS: &str = "slot, begun_at, until_at, share, most_bytes, kept_bytes, exchanges, actor";

impl RecordingStore {
    /// Returns the store in this database, encrypted with these keys.
    pub fn new(database: Database, keys: KeyRing) -> Self {
        Self { database, keys }
    }

    /// Returns the terms of all running recordings.
    pub async fn wanted(&self, now: Millis) -> sqlx::Result<BTreeMap<String, RecordingTerms>> {
        let rows = sqlx::query(
            "SELECT slot, begun_at, share, until_at FROM recordings WHERE until_at > $1 AND kept_bytes < most_bytes",
        )
        .bind(now.0)
        .fetch_all(self.database.reader())
        .await?;
        let wanted = rows.iter().map(|row| {
            let share: i64 = row.try_get("share")?;
            let wanted = RecordingTerms {
                begun_at: Millis(row.try_get("begun_at")?),
                share: u16::try_from(share).unwrap_or_default(),
                until: Millis(row.try_get("until_at")?),
            };
            Ok((row.try_get("slot")?, wanted))
        });
        wanted.collect()
    }

    /// Starts a recording, and deletes the slot's previous one. Returns `false` while the previous one is running.
    pub async fn begin(&self, recording: &Recording) -> sqlx::Result<bool> {
        let mut transaction = self.database.begin().await?;
        let begun = sqlx::query(
            "INSERT INTO recordings (slot, begun_at, until_at, share, most_bytes, actor) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (slot) DO UPDATE SET begun_at = excluded.begun_at, until_at = excluded.until_at, \
             share = excluded.share, most_bytes = excluded.most_bytes, actor = excluded.actor, kept_bytes = 0, \
             exchanges = 0 WHERE recordings.until_at <= excluded.begun_at",
        )
        .bind(&recording.slot)
        .bind(recording.begun_at.0)
        .bind(recording.until_at.0)
        .bind(i64::from(recording.share))
        .bind(recording.most_bytes)
        .bind(&recording.actor)
        .execute(&mut transaction)
        .await?
        .rows_affected();
        if begun == 0 {
            return Ok(false);
        }
        for table in ["recorded_exchanges", "recording_nodes"] {
            sqlx::query(AssertSqlSafe(format!(
                "DELETE FROM {table} WHERE slot = $1"
            )))
            .bind(&recording.slot)
            .execute(&mut transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Records that a node's run has confirmed the recording.
    pub async fn note_node(&self, slot: &str, boot_id: &str, begun_at: Millis) -> sqlx::Result<()> {
        sqlx::query(
            "INSERT INTO recording_nodes (slot, boot_id, begun_at) VALUES ($1, $2, $3) \
             ON CONFLICT (slot, boot_id) DO UPDATE SET begun_at = excluded.begun_at",
        )
        .bind(slot)
        .bind(boot_id)
        .bind(begun_at.0)
        .execute(self.database.writer())
        .await
        .map(drop)
    }

    /// Returns the node runs that have confirmed a recording.
    pub async fn nodes(&self, slot: &str, begun_at: Millis) -> sqlx::Result<Vec<String>> {
        sqlx::query_scalar("SELECT boot_id FROM recording_nodes WHERE slot = $1 AND begun_at = $2")
            .bind(slot)
            .bind(begun_at.0)
            .fetch_all(self.database.reader())
            .await
    }

    /// Ends a recording. Returns `false` if none is running.
    pub async fn end(&self, slot: &str, now: Millis) -> sqlx::Result<bool> {
        let ended =
            sqlx::query("UPDATE recordings SET until_at = $2 WHERE slot = $1 AND until_at > $2")
                .bind(slot)
                .bind(now.0)
                .execute(self.database.writer())
                .await?;
        Ok(ended.rows_affected() > 0)
    }

    /// Deletes a recording with its exchanges. Returns `false` if there is none.
    pub async fn forget(&self, slot: &str) -> sqlx::Result<bool> {
        let mut transaction = self.database.begin().await?;
        let mut forgotten = 0;
        for table in ["recorded_exchanges", "recording_nodes", "recordings"] {
            forgotten = sqlx::query(AssertSqlSafe(format!(
                "DELETE FROM {table} WHERE slot = $1"
            )))
            .bind(slot)
            .execute(&mut transaction)
            .await?
            .rows_affected();
        }
        transaction.commit().await?;
        Ok(forgotten > 0)
    }

    /// Deletes expired recordings.
    pub async fn prune(&self, now: Millis) -> sqlx::Result<()> {
        let before = Millis(now.0 - KEPT_FOR.as_millis() as i64);
        let old: Vec<String> =
            sqlx::query_scalar("SELECT slot FROM recordings WHERE until_at < $1")
                .bind(before.0)
                .fetch_all(self.database.reader())
                .await?;
        for slot in old {
            self.forget(&slot).await?;
        }
        Ok(())
    }

    /// Stores an exchange, as JSON, if the recording is running and has space. Returns whether the exchange was stored.
    /// An exchange without space is skipped: the recording continues with smaller ones until it is full.
    pub async fn keep(&self, slot: &str, content: &[u8], now: Millis) -> sqlx::Result<bool> {
        let id = ids::recorded_exchange_id();
        let sealed = self.keys.seal(
            Purpose::RECORDING,
            &[slot.as_bytes(), id.as_bytes()],
            content,
        );
        let bytes = sealed.len() as i64;
        let mut transaction = self.database.begin().await?;
        let has_room = sqlx::query(
            "UPDATE recordings SET kept_bytes = kept_bytes + $2, exchanges = exchanges + 1 \
             WHERE slot = $1 AND until_at > $3 AND kept_bytes + $2 <= most_bytes",
        )
        .bind(slot)
        .bind(bytes)
        .bind(now.0)
        .execute(&mut transaction)
        .await?
        .rows_affected()
            > 0;
        if !has_room {
            sqlx::query(
                "UPDATE recordings SET until_at = $2 WHERE slot = $1 AND until_at > $2 AND most_bytes - kept_bytes < $3",
            )
            .bind(slot)
            .bind(now.0)
            .bind(FULL_BELOW_BYTES)
            .execute(&mut transaction)
            .await?;
            transaction.commit().await?;
            return Ok(false);
        }
        sqlx::query(
            "INSERT INTO recorded_exchanges (id, slot, at, content) VALUES ($1, $2, $3, $4)",
        )
        .bind(&id)
        .bind(slot)
        .bind(now.0)
        .bind(sealed)
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Returns the recording of a slot.
    pub async fn find(&self, slot: &str) -> sqlx::Result<Option<Recording>> {
        let found = self.list(Some(slot)).await?;
        Ok(found.into_iter().next())
    }

    /// Returns all recordings, or that of a slot.
    pub async fn list(&self, slot: Option<&str>) -> sqlx::Result<Vec<Recording>> {
        let text = format!(
            "SELECT {COLUMNS} FROM recordings WHERE CAST($1 AS TEXT) IS NULL OR slot = $1 ORDER BY slot"
        );
        let rows = sqlx::query(AssertSqlSafe(text))
            .bind(slot)
            .fetch_all(self.database.reader())
            .await?;
        let read = rows.iter().map(|row| {
            let share: i64 = row.try_get("share")?;
            Ok(Recording {
                slot: row.try_get("slot")?,
                begun_at: Millis(row.try_get("begun_at")?),
                until_at: Millis(row.try_get("until_at")?),
                share: u16::try_from(share).unwrap_or_default(),
                most_bytes: row.try_get("most_bytes")?,
                kept_bytes: row.try_get("kept_bytes")?,
                exchanges: row.try_get("exchanges")?,
                actor: row.try_get("actor")?,
            })
        });
        read.collect()
    }

    /// Returns a page of a slot's exchanges after this id, in order.
    pub async fn exchanges(&self, slot: &str, after: &str) -> sqlx::Result<Vec<StoredExchange>> {
        let rows = sqlx::query(
            "SELECT id, at, content FROM recorded_exchanges WHERE slot = $1 AND id > $2 ORDER BY id LIMIT $3",
        )
        .bind(slot)
        .bind(after)
        .bind(PAGE)
        .fetch_all(self.database.reader())
        .await?;
        let opened = rows.iter().map(|row| {
            let id: String = row.try_get("id")?;
            let sealed: Vec<u8> = row.try_get("content")?;
            let fields = [slot.as_bytes(), id.as_bytes()];
            let content = self.keys.unseal(Purpose::RECORDING, &fields, &sealed);
            Ok(StoredExchange {
                at: Millis(row.try_get("at")?),
                exchange: content
                    .ok()
                    .and_then(|content| serde_json::from_slice(&content).ok()),
                id,
            })
        });
        opened.collect()
    }
}
