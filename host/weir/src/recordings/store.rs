//! What is to be recorded, and what was: rows of `recordings` and `recorded_exchanges`.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};
use weir_storage::clock::Millis;
use weir_storage::sealing::{KeyRing, Purpose};
use weir_storage::{Database, ids};

use super::RecordingTerms;
use weir_upstream::recorded::RecordedExchange;

/// How long what was recorded is kept once the recording has ended.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A recording with less room than this is full.
const FULL_BELOW_BYTES: i64 = 4 << 10;

/// Exchanges that are read at once: each has a MiB and a half at most.
pub const PAGE: i64 = 8;

/// Where recordings are kept.
pub struct RecordingStore {
    database: Database,
    keys: KeyRing,
}

/// A recording, under way or over.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The slot.
    pub slot: String,
    /// From when.
    pub begun_at: Millis,
    /// Until when, at most.
    pub until_at: Millis,
    /// Of all exchanges, in parts of ten thousand.
    pub share: u16,
    /// Bytes that may be kept.
    pub most_bytes: i64,
    /// Bytes that are.
    pub kept_bytes: i64,
    /// How many exchanges that is.
    pub exchanges: i64,
    /// Who asked for it.
    pub actor: String,
}

/// An exchange as it is kept.
pub struct KeptExchange {
    /// Its id; later ones are greater.
    pub id: String,
    /// When it ended.
    pub at: Millis,
    /// What it was; none where the key is gone that it was sealed under.
    pub exchange: Option<RecordedExchange>,
}

const COLUMNS: &str = "slot, begun_at, until_at, share, most_bytes, kept_bytes, exchanges, actor";

impl RecordingStore {
    /// In this database, sealed under these keys.
    pub fn new(database: Database, keys: KeyRing) -> Self {
        Self { database, keys }
    }

    /// What is wanted of each slot at this moment.
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

    /// Begins one, in the place of the slot's last one, which is forgotten. `false` while that is under way.
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

    /// Notes that a run of a node records a slot from now on.
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

    /// The runs of nodes that have taken up a recording.
    pub async fn nodes(&self, slot: &str, begun_at: Millis) -> sqlx::Result<Vec<String>> {
        sqlx::query_scalar("SELECT boot_id FROM recording_nodes WHERE slot = $1 AND begun_at = $2")
            .bind(slot)
            .bind(begun_at.0)
            .fetch_all(self.database.reader())
            .await
    }

    /// Ends one now. `false` if none is under way.
    pub async fn end(&self, slot: &str, now: Millis) -> sqlx::Result<bool> {
        let ended =
            sqlx::query("UPDATE recordings SET until_at = $2 WHERE slot = $1 AND until_at > $2")
                .bind(slot)
                .bind(now.0)
                .execute(self.database.writer())
                .await?;
        Ok(ended.rows_affected() > 0)
    }

    /// Forgets one, and all that was recorded. `false` if there is none.
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

    /// Forgets what has ended long ago.
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

    /// Keeps an exchange, as JSON, if the recording is under way and has room for it. Returns whether it was kept. One that does
    /// not fit is skipped: the recording goes on for smaller ones, until hardly any room is left.
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

    /// The recording of a slot.
    pub async fn find(&self, slot: &str) -> sqlx::Result<Option<Recording>> {
        let found = self.list(Some(slot)).await?;
        Ok(found.into_iter().next())
    }

    /// All of them, or that of a slot.
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

    /// Some exchanges of a slot behind the one of this id, in order.
    pub async fn exchanges(&self, slot: &str, after: &str) -> sqlx::Result<Vec<KeptExchange>> {
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
            Ok(KeptExchange {
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
