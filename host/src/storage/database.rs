//! The database: a pool to read with and a pool to write with, over `sqlx::Any`.
//!
//! SQLite for now. It has one writer connection, whose transactions begin with `BEGIN IMMEDIATE` (a
//! deferred one that reads and then writes fails at once when another has written meanwhile), and a few
//! readers. A commit is on disk when it returns: WAL with `synchronous=FULL`.
//!
//! **Invariant:** waiting for a connection is short and explicit, so that a stuck database becomes an
//! error and not a queue.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AnyPool, Executor, SqlSafeStr};

/// How long a request waits for a connection. sqlx would wait for 30 s.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(250);

/// How long the database may take to be opened.
const START_TIMEOUT: Duration = Duration::from_secs(10);

const READERS: u32 = 4;

/// The migrations of SQLite, in order; `build.rs` makes the list from `migrations/sqlite`.
const SQLITE_MIGRATIONS: &[(i64, &str, &str)] =
    include!(concat!(env!("OUT_DIR"), "/migrations_sqlite.rs"));

/// A database, its schema up to date. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Database {
    reader: AnyPool,
    writer: AnyPool,
}

impl Database {
    /// Opens a database and brings its schema up to date.
    ///
    /// `sqlite:PATH` is a file, made if it is not there; `sqlite::memory:` lives as long as this does.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        if !url.starts_with("sqlite:") {
            bail!("`database_url` must begin with sqlite:");
        }
        sqlx::any::install_default_drivers();
        let in_memory = url.contains(":memory:");
        let connect_url = match url.split_once('?') {
            _ if in_memory => url.to_owned(),
            None => format!("{url}?mode=rwc"),
            Some(_) => format!("{url}&mode=rwc"),
        };
        let options = connect_url
            .parse::<AnyConnectOptions>()
            .context("`database_url` is not a URL")?;
        let pool = |connections: u32| {
            AnyPoolOptions::new()
                .max_connections(connections)
                // An in-memory database is gone with its connection.
                .min_connections(u32::from(in_memory))
                .idle_timeout(None)
                .max_lifetime(None)
                .acquire_timeout(ACQUIRE_TIMEOUT)
                .after_connect(|connection, _| {
                    Box::pin(async move {
                        connection
                            .execute(
                                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                                 PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 200;",
                            )
                            .await
                            .map(drop)
                    })
                })
        };
        let _migrating = match sqlite_file(url) {
            Some(file) => Some(lock_beside(&file, "migrating").await?),
            None => None,
        };
        let writer = pool(1).connect_lazy_with(options.clone());
        let mut connection = acquire_at_start(&writer)
            .await
            .with_context(|| format!("opening the database {url}"))?;
        let reader = if in_memory {
            writer.clone()
        } else {
            pool(READERS).connect_lazy_with(options)
        };
        sqlite_migrator()
            .run(&mut *connection)
            .await
            .context("bringing the database's schema up to date")?;
        drop(connection);
        drop(
            acquire_at_start(&reader)
                .await
                .context("opening the database to read")?,
        );
        Ok(Self { reader, writer })
    }

    /// Connections to read with.
    pub fn reader(&self) -> &AnyPool {
        &self.reader
    }

    /// Connections to write with. Begin a transaction with `begin_with("BEGIN IMMEDIATE")`.
    pub fn writer(&self) -> &AnyPool {
        &self.writer
    }

    /// Whether the database answers.
    pub async fn is_reachable(&self) -> bool {
        tokio::time::timeout(ACQUIRE_TIMEOUT * 2, self.reader.execute("SELECT 1"))
            .await
            .is_ok_and(|answer| answer.is_ok())
    }

    /// Closes all connections; what was committed is on disk already.
    pub async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

/// The first connection of a pool. Nobody waits for it as a request would, so that a slow start is no
/// reason to fail.
async fn acquire_at_start(pool: &AnyPool) -> sqlx::Result<sqlx::pool::PoolConnection<sqlx::Any>> {
    let until = Instant::now() + START_TIMEOUT;
    loop {
        match pool.acquire().await {
            Err(sqlx::Error::PoolTimedOut) if Instant::now() < until => {}
            outcome => return outcome,
        }
    }
}

/// Makes this process the one that serves from a SQLite file: two would each trust a cache of their own.
/// The lock is held until the returned file is dropped, or the process ends.
pub fn lock_for_serving(url: &str) -> anyhow::Result<Option<File>> {
    let Some(path) = sqlite_file(url) else {
        return Ok(None);
    };
    let path = beside(&path, "serving");
    let file = lock_file(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => bail!(
            "another weir is serving from {}; stop it, or give this one its own `data_dir`",
            path.display()
        ),
        Err(std::fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("locking {}", path.display()))
        }
    }
}

fn sqlite_file(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("sqlite:")?.split('?').next()?;
    let path = path.strip_prefix("//").unwrap_or(path);
    (!url.contains(":memory:")).then(|| PathBuf::from(path))
}

/// Waits for the lock; whoever holds it is done in moments. SQLite itself has no lock that spans the
/// look at the schema and its change.
async fn lock_beside(database: &Path, what: &str) -> anyhow::Result<File> {
    let path = beside(database, what);
    tokio::task::spawn_blocking(move || {
        let file = lock_file(&path)?;
        file.lock()
            .with_context(|| format!("locking {}", path.display()))?;
        Ok(file)
    })
    .await?
}

fn beside(database: &Path, what: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(format!(".{what}"));
    PathBuf::from(name)
}

fn lock_file(path: &Path) -> anyhow::Result<File> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        crate::secrets::create_private_folder(folder)?;
    }
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("creating {}", path.display()))
}

fn sqlite_migrator() -> Migrator {
    let migrations = SQLITE_MIGRATIONS
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
    Migrator::with_migrations(migrations)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_found_in_the_url() {
        for (url, file) in [
            ("sqlite:.weir/weir.db", Some(".weir/weir.db")),
            ("sqlite:/var/lib/w.db?x=y", Some("/var/lib/w.db")),
            ("sqlite:///var/lib/w.db", Some("/var/lib/w.db")),
            ("sqlite::memory:", None),
        ] {
            assert_eq!(sqlite_file(url), file.map(PathBuf::from), "{url}");
        }
    }

    #[tokio::test]
    async fn an_in_memory_database_has_the_schema() {
        let database = Database::open("sqlite::memory:").await.unwrap();
        let users: i64 = sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM users")
            .fetch_one(database.reader())
            .await
            .unwrap();
        assert_eq!(users, 0);
        assert!(database.is_reachable().await);
    }
}
