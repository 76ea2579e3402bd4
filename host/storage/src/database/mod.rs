//! The database: read connections and write connections, over `sqlx::Any`.
//!
//! The database is SQLite unless the URL names PostgreSQL. Both share their SQL if possible; otherwise, ask
//! [`Database::dialect`].
//!
//! **Invariant:** no request waits long. A connection is ready within 250 ms and a statement is done within 1 s, or
//! the caller gets an error: a stuck database must not become a queue. This crate never retries, since only the
//! caller knows whether a retry is safe.
//!
//! **Invariant:** neither an error nor a log line contains the URL's password.
//!
//! To add a migration, see `migrations/README.md`.

mod checkpoints;
mod connections;
mod open;
mod postgres;
mod server_role;
mod servers;
mod sqlite;
mod time;
mod timeouts;
mod write_turn;

use std::any::Any;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AnyPool, Executor, SqlSafeStr};
use tokio_util::task::AbortOnDropHandle;

use self::checkpoints::Checkpoints;
pub use self::connections::{DatabaseConnections, Snapshot, Transaction};
use self::server_role::Role;
pub use self::sqlite::{DatabaseInUse, file_of, lock_for_serving, lock_for_working};
pub use self::time::DatabaseClock;
pub use self::timeouts::Timeouts;
pub use self::write_turn::{NativeConnection, WriteTurn};
use crate::secrets::SecretUrl;

/// Time limit of a connection while the database is opened. No request waits for it. With a shorter limit, a slow
/// connection would be abandoned and begun anew for ever.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Number, name and SQL of each migration, in order; `build.rs` makes the lists.
type Migrations = [(i64, &'static str, &'static str)];

/// A database with an up-to-date schema. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Database {
    dialect: SqlDialect,
    reader: DatabaseConnections,
    writer: DatabaseConnections,
    turn: Option<WriteTurn>,
    checkpoints: Option<Arc<Checkpoints>>,
    /// The task that keeps the pools on the primary of several servers.
    follower: Option<Arc<AbortOnDropHandle<()>>>,
    shared: Arc<OnceLock<Arc<dyn Any + Send + Sync>>>,
}

/// The SQL dialect of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlDialect {
    Sqlite,
    Postgres,
}

impl SqlDialect {
    /// Returns the dialect for a URL; the error lists the supported schemes.
    pub fn of(url: &SecretUrl) -> anyhow::Result<Self> {
        match url.scheme() {
            "sqlite" => Ok(Self::Sqlite),
            "postgres" | "postgresql" => Ok(Self::Postgres),
            _ => bail!("`database_url` must begin with sqlite: or postgres://"),
        }
    }

    /// Returns the query for the texts of a JSON array, which is the parameter with this number.
    pub fn texts(self, parameter: u8) -> String {
        match self {
            Self::Sqlite => format!("SELECT value FROM json_each(${parameter})"),
            Self::Postgres => {
                format!("SELECT jsonb_array_elements_text(CAST(${parameter} AS JSONB))")
            }
        }
    }
}

impl Database {
    pub fn reader(&self) -> &DatabaseConnections {
        &self.reader
    }

    /// Returns the write connections for single statements. For more than one statement, see [`Self::begin`].
    ///
    /// Never use it for a statement with `RETURNING`: outside a transaction, sqlx stops at the first row, SQLite
    /// commits when the statement is reset afterwards, and an error of the commit is lost.
    pub fn writer(&self) -> &DatabaseConnections {
        &self.writer
    }

    /// Keeps bytes under a number unless some exist, and returns the stored bytes: `keep` inserts or does nothing,
    /// `read` reads.
    pub async fn keep_first(
        &self,
        keep: &'static str,
        read: &'static str,
        number: i64,
        bytes: Vec<u8>,
    ) -> sqlx::Result<Vec<u8>> {
        let writer = self.writer();
        sqlx::query(keep)
            .bind(number)
            .bind(bytes)
            .execute(writer)
            .await?;
        sqlx::query_scalar(read)
            .bind(number)
            .fetch_one(writer)
            .await
    }

    /// Begins a transaction that may write. A drop without a commit rolls it back.
    ///
    /// SQLite runs one such transaction at a time. In PostgreSQL, lock the rows that the transaction reads and then
    /// writes with `SELECT … ORDER BY … FOR UPDATE`.
    pub async fn begin(&self) -> sqlx::Result<Transaction> {
        self.writer
            .begin(match self.dialect {
                // A deferred transaction that reads and then writes fails at once if another has written in between.
                SqlDialect::Sqlite => "BEGIN IMMEDIATE",
                SqlDialect::Postgres => "BEGIN",
            })
            .await
    }

    /// Begins a read-only transaction on one snapshot without a time limit, for the complete reads of operators and
    /// administrators. Other requests must not use it.
    pub async fn snapshot(&self) -> sqlx::Result<Snapshot> {
        let statement = match self.dialect {
            SqlDialect::Sqlite => "BEGIN",
            SqlDialect::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        };
        let mut snapshot = self.reader.snapshot(statement).await?;
        if self.dialect == SqlDialect::Postgres {
            snapshot.execute("SET LOCAL statement_timeout = 0").await?;
        }
        Ok(snapshot)
    }

    /// Returns the same database with other time limits, for work that no request waits for.
    pub fn with_timeouts(&self, timeouts: Timeouts) -> Self {
        Self {
            reader: self.reader.with_timeouts(timeouts),
            writer: self.writer.with_timeouts(timeouts),
            ..self.clone()
        }
    }

    pub fn dialect(&self) -> SqlDialect {
        self.dialect
    }

    /// Returns whether the database responds, and its server accepts writes.
    pub async fn is_reachable(&self) -> bool {
        let can_write = match self.dialect {
            // A file accepts writes, or the ledger reports why not.
            SqlDialect::Sqlite => true,
            SqlDialect::Postgres => {
                matches!(Role::Writer.is_served(&self.writer).await, Ok(true))
            }
        };
        can_write && self.reader.execute("SELECT 1").await.is_ok()
    }

    /// Returns SQLite's write turn, for transactions of many small statements.
    pub fn write_turn(&self) -> Option<&WriteTurn> {
        self.turn.as_ref()
    }

    /// Returns state that all clones of this value share: for the one user that keeps a part of the data in memory.
    ///
    /// # Panics
    ///
    /// If it is asked for with different types.
    pub fn shared<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let shared = self.shared.get_or_init(|| Arc::new(T::default()));
        shared
            .clone()
            .downcast()
            .expect("one type for each database")
    }

    /// Returns whether [`Self::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.writer.is_closed()
    }

    /// Closes all connections; commits are already on disk.
    pub async fn close(&self) {
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.stop().await;
        }
        if let Some(follower) = &self.follower {
            follower.abort();
        }
        if let Some(turn) = &self.turn {
            turn.close().await;
        }
        self.reader.close().await;
        self.writer.close().await;
    }
}

/// Returns whether an error shows an unreachable or overloaded database, rather than a wrong statement.
pub fn is_outage(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Protocol(_) => true,
        // Malformed data, violated constraints, syntax (PostgreSQL's classes 22, 23 and 42; SQLite's codes for the
        // same) are the statement's fault. All other codes are an outage: cancelled, out of room, shutting down,
        // busy.
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            let is_sqlite_mistake = ["1", "19", "20", "25"].contains(&&*code)
                || error.is_unique_violation()
                || error.is_check_violation()
                || error.is_foreign_key_violation();
            !(is_sqlite_mistake
                || ["22", "23", "42"]
                    .iter()
                    .any(|class| code.len() == 5 && code.starts_with(class)))
        }
        _ => false,
    }
}

/// Runs a step of the start, which may be repeated, and retries it after a time-out: no request waits for it.
pub async fn at_start<T, F: Future<Output = sqlx::Result<T>>>(
    step: impl Fn() -> F,
) -> sqlx::Result<T> {
    let until = Instant::now() + START_TIMEOUT;
    loop {
        match step().await {
            Err(sqlx::Error::PoolTimedOut) if Instant::now() < until => {}
            Err(sqlx::Error::Io(error))
                if error.kind() == io::ErrorKind::TimedOut && Instant::now() < until => {}
            outcome => return outcome,
        }
    }
}

/// Opens a pool's first connections and waits until they are usable: the first requests need not wait for new ones.
async fn warm(pool: &AnyPool, connections: usize) -> sqlx::Result<()> {
    let mut opened = Vec::with_capacity(connections);
    for _ in 0..connections {
        opened.push(pool.acquire().await?);
    }
    drop(opened);
    let until = Instant::now() + START_TIMEOUT;
    while pool.num_idle() < connections && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

async fn migrate(
    connection: &mut sqlx::AnyConnection,
    migrations: &Migrations,
) -> anyhow::Result<()> {
    let migrations = migrations
        .iter()
        .map(|&(version, name, sql)| {
            Migration::new(
                version,
                name.into(),
                MigrationType::Simple,
                sqlx::AssertSqlSafe(sql).into_sql_str(),
                false,
            )
        })
        .collect();
    // `run` would be simpler, but the compiler cannot see that its future is `Send`.
    Migrator::with_migrations(migrations)
        .run_direct(None, connection, false)
        .await
        .context("bringing the database's schema up to date")
}
