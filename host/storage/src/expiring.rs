//! Values that expire: in Redis if there is one, else in the database. The in-process cache is no place for them,
//! since it evicts.
//!
//! **Invariant:** only a writer that has read a value replaces it: of two concurrent writers, one must read again.

use std::time::Duration;

use sqlx::Row;

use crate::Cache;
use crate::Database;
use crate::cache::CacheError;
use crate::clock::Millis;
use crate::ids;

/// Expired values that one statement removes.
const BATCH: i64 = 500;

/// The stores of values.
#[derive(Debug, Clone)]
pub struct ExpiringValues {
    database: Database,
    cache: Cache,
}

/// A value that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionedValue {
    /// The value.
    pub value: Vec<u8>,
    /// The version of the value in its place.
    pub version: ValueVersion,
}

/// A number that tells a value from all others that ever stood in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueVersion(u64);

/// Values can be neither read nor written now.
#[derive(Debug, thiserror::Error)]
pub enum ExpiringError {
    /// Redis does not respond, or refused the command.
    #[error("the cache cannot store values now")]
    Cache(#[from] CacheError),
    /// The database does not respond, or refused the statement.
    #[error("the database cannot store values now: {0}")]
    Database(#[from] sqlx::Error),
}

impl ExpiringValues {
    /// Stores values in this database or cache.
    pub fn new(database: Database, cache: Cache) -> Self {
        Self { database, cache }
    }

    /// Returns the value of a name, unless it has expired.
    pub async fn find(
        &self,
        name: &str,
        now: Millis,
    ) -> Result<Option<VersionedValue>, ExpiringError> {
        if let Cache::Redis(redis) = &self.cache {
            let found = redis.find_versioned(name).await?;
            return Ok(found.map(|(version, value)| VersionedValue {
                value,
                version: ValueVersion(version),
            }));
        }
        let row = sqlx::query(
            "SELECT version, value FROM expiring_values WHERE name = $1 AND expires_at > $2",
        )
        .bind(name)
        .bind(now.0)
        .fetch_optional(self.database.reader())
        .await?;
        row.map(|row| {
            Ok(VersionedValue {
                value: row.try_get("value")?,
                version: ValueVersion(row.try_get::<i64, _>("version")?.cast_unsigned()),
            })
        })
        .transpose()
    }

    /// Writes a value in the place of the one that was found there, or of none. Returns whether it did: another
    /// writer may have been faster.
    pub async fn replace(
        &self,
        name: &str,
        before: Option<ValueVersion>,
        value: &[u8],
        expires_at: Millis,
        now: Millis,
    ) -> Result<bool, ExpiringError> {
        let version = ids::unlike_any_other();
        if let Cache::Redis(redis) = &self.cache {
            let ms = u64::try_from(expires_at.0 - now.0).unwrap_or(0).max(1);
            let before = before.map(|ValueVersion(before)| before);
            let ttl = Duration::from_millis(ms);
            return Ok(redis
                .replace_versioned(name, before, version, value, ttl)
                .await?);
        }
        let statement = match before {
            None => {
                "INSERT INTO expiring_values (name, version, value, expires_at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (name) DO UPDATE SET version = excluded.version, value = excluded.value, \
                 expires_at = excluded.expires_at WHERE expiring_values.expires_at <= $5"
            }
            Some(_) => {
                "UPDATE expiring_values SET version = $2, value = $3, expires_at = $4 \
                 WHERE name = $1 AND version = $5"
            }
        };
        let last = before.map_or(now.0, |ValueVersion(before)| before.cast_signed());
        let written = sqlx::query(statement)
            .bind(name)
            .bind(version.cast_signed())
            .bind(value)
            .bind(expires_at.0)
            .bind(last)
            .execute(self.database.writer())
            .await?;
        Ok(written.rows_affected() == 1)
    }

    /// Removes a value. Returns whether an unexpired value existed.
    pub async fn remove(&self, name: &str, now: Millis) -> Result<bool, ExpiringError> {
        if let Cache::Redis(redis) = &self.cache {
            return Ok(redis.remove_versioned(name).await?);
        }
        // An expired value may be removed as well, but counts as absent.
        let removed: Option<i64> =
            sqlx::query_scalar("DELETE FROM expiring_values WHERE name = $1 RETURNING expires_at")
                .bind(name)
                .fetch_optional(self.database.writer())
                .await?;
        Ok(removed.is_some_and(|expires_at| expires_at > now.0))
    }

    /// Removes expired values in batches, and returns their number.
    pub async fn prune(&self, now: Millis) -> sqlx::Result<u64> {
        let mut all = 0;
        loop {
            let removed = sqlx::query(
                "DELETE FROM expiring_values WHERE name IN \
                 (SELECT name FROM expiring_values WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)",
            )
            .bind(now.0)
            .bind(BATCH)
            .execute(self.database.writer())
            .await?
            .rows_affected();
            all += removed;
            if removed < BATCH.cast_unsigned() {
                return Ok(all);
            }
        }
    }
}
