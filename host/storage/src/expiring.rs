//! Values that expire: in Redis if there is one, else in the database. The in-process cache is no place for them,
//! since it evicts.
//!
//! SQLite waits for the disk at each commit. Writes that arrive meanwhile share the next commit.
//!
//! **Invariant:** only a writer that has read a value replaces it: of two concurrent writers, one must read again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::{Any, Executor, Row};
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::Cache;
use crate::Database;
use crate::cache::CacheError;
use crate::clock::Millis;
use crate::database::SqlDialect;
use crate::ids;

/// Expired values that one statement removes.
const BATCH: i64 = 500;

/// The stores of values.
#[derive(Debug, Clone)]
pub struct ExpiringValues {
    database: Database,
    cache: Cache,
    writes: Arc<SharedCommits>,
}

/// Writes that wait for a commit, and the turn of the caller that writes them all.
#[derive(Debug, Default)]
struct SharedCommits {
    waiting: Mutex<Vec<WaitingWrite>>,
    turn: tokio::sync::Mutex<()>,
}

/// A write, and where its result goes: whether it replaced the value.
type WaitingWrite = (Arc<Write>, oneshot::Sender<Result<bool, String>>);

/// A value to be written in the place of another, or of none.
#[derive(Debug)]
struct Write {
    name: String,
    before: Option<ValueVersion>,
    version: u64,
    value: Vec<u8>,
    expires_at: Millis,
    now: Millis,
}

/// A value that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionedValue {
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
        Self {
            database,
            cache,
            writes: Arc::default(),
        }
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
        let write = Write {
            name: name.to_owned(),
            before,
            version,
            value: value.to_vec(),
            expires_at,
            now,
        };
        let is_written = match self.database.dialect() {
            SqlDialect::Sqlite => self.write_with_others(write).await,
            SqlDialect::Postgres => write.run(self.database.writer()).await,
        };
        Ok(is_written?)
    }

    /// Writes in one commit with all writes that wait.
    async fn write_with_others(&self, write: Write) -> sqlx::Result<bool> {
        let write = Arc::new(write);
        let (sender, mut result) = oneshot::channel();
        self.writes.waiting().push((write.clone(), sender));
        let _turn = self.writes.turn.lock().await;
        match result.try_recv() {
            Ok(is_written) => return is_written.map_err(sqlx::Error::Protocol),
            // The writer for all was dropped. The write may have succeeded nevertheless.
            Err(TryRecvError::Closed) => return Err(sqlx::Error::WorkerCrashed),
            Err(TryRecvError::Empty) => {}
        }
        let mut waiting = std::mem::take(&mut *self.writes.waiting());
        waiting.retain(|(_, sender)| !sender.is_closed());
        if waiting.len() == 1 {
            return write.run(self.database.writer()).await;
        }
        let written = self.write_all(&waiting).await;
        let mut own = Ok(false);
        for (index, (other, sender)) in waiting.into_iter().enumerate() {
            let is_written = match &written {
                Ok(written) => Ok(written[index]),
                Err(error) => Err(error.to_string()),
            };
            if Arc::ptr_eq(&write, &other) {
                own = is_written;
            } else {
                // Without a receiver, nobody waits for it any more.
                let _ = sender.send(is_written);
            }
        }
        own.map_err(sqlx::Error::Protocol)
    }

    /// Writes in one transaction, and returns for each write whether it replaced the value.
    async fn write_all(&self, writes: &[WaitingWrite]) -> sqlx::Result<Vec<bool>> {
        let mut transaction = self.database.begin().await?;
        let mut written = Vec::with_capacity(writes.len());
        for (write, _) in writes {
            written.push(write.run(&mut transaction).await?);
        }
        transaction.commit().await?;
        Ok(written)
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

impl SharedCommits {
    fn waiting(&self) -> MutexGuard<'_, Vec<WaitingWrite>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write {
    /// Runs the statement, and returns whether it replaced the value.
    async fn run<'c>(&self, executor: impl Executor<'c, Database = Any>) -> sqlx::Result<bool> {
        let statement = match self.before {
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
        let last = match self.before {
            None => self.now.0,
            Some(ValueVersion(before)) => before.cast_signed(),
        };
        let written = sqlx::query(statement)
            .bind(&*self.name)
            .bind(self.version.cast_signed())
            .bind(&*self.value)
            .bind(self.expires_at.0)
            .bind(last)
            .execute(executor)
            .await?;
        Ok(written.rows_affected() == 1)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use crate::cache::memory::MemoryCache;
    use crate::clock::Clock;
    use crate::secrets::SecretUrl;

    const NOW: Millis = Millis(1_000);
    const LATER: Millis = Millis(2_000);

    async fn values() -> ExpiringValues {
        let database = Database::open(&SecretUrl::new("sqlite::memory:")).await;
        let cache = Cache::Memory(MemoryCache::new(Clock::System));
        ExpiringValues::new(database.expect("it opens"), cache)
    }

    #[tokio::test]
    async fn writes_that_wait_share_a_commit_and_of_two_for_a_version_one_wins() {
        let values = values().await;
        // Nobody can write, so that all wait.
        let transaction = values.database.begin().await.expect("it begins");
        let names: Vec<_> = (0..20)
            .map(|number| format!("name-{}", number / 2))
            .collect();
        let writes = names.iter().enumerate().map(async |(number, name)| {
            let value = [number as u8];
            values.replace(name, None, &value, LATER, NOW).await
        });
        let release = async {
            while values.writes.waiting().len() < names.len() - 1 {
                tokio::task::yield_now().await;
            }
            transaction.rollback().await.expect("it ends");
        };
        let (written, ()) = tokio::join!(join_all(writes), release);
        for (number, is_written) in written.into_iter().enumerate() {
            // Each name has two writers: the second finds the value of the first.
            assert_eq!(is_written.ok(), Some(number % 2 == 0), "{number}");
        }
        for (number, name) in names.iter().enumerate().step_by(2) {
            let found = values.find(name, NOW).await.expect("it is read");
            assert_eq!(found.map(|found| found.value), Some(vec![number as u8]));
        }
    }

    #[tokio::test]
    async fn a_writer_that_is_dropped_writes_nothing_and_others_are_not_stopped() {
        let values = values().await;
        let transaction = values.database.begin().await.expect("it begins");
        {
            let mut dropped = Box::pin(values.replace("a", None, b"a", LATER, NOW));
            let mut behind = Box::pin(values.replace("b", None, b"b", LATER, NOW));
            assert!(futures_util::poll!(&mut dropped).is_pending());
            assert!(futures_util::poll!(&mut behind).is_pending());
        }
        transaction.rollback().await.expect("it ends");
        let is_written = values.replace("c", None, b"c", LATER, NOW).await;
        assert!(is_written.expect("it is written"));
        for (name, is_there) in [("a", false), ("b", false), ("c", true)] {
            let found = values.find(name, NOW).await.expect("it is read");
            assert_eq!(found.is_some(), is_there, "{name}");
        }
    }
}
