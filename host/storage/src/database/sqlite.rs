//! SQLite: one writer at a time, a few readers, and a connection that moves the log into the file.
//!
//! A commit is on disk when it returns: WAL with `synchronous=FULL`. Checkpoints use a connection of their own: a
//! commit waits for a checkpoint only if the log has become long, and then only for its end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use rusqlite::OpenFlags;
use sqlx::Executor;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};

use super::checkpoints::Checkpoints;
use super::server_role::Doubt;
use super::{
    Database, DatabaseConnections, Migrations, START_TIMEOUT, SqlDialect, Timeouts, WriteTurn,
    migrate, warm,
};
use crate::file_lock::FileLock;
use crate::secrets::SecretUrl;

const MIGRATIONS: &Migrations = include!(concat!(env!("OUT_DIR"), "/migrations_sqlite.rs"));

const READERS: u32 = 4;

/// Prepared statements that the writer keeps: all that the ledger has.
const PREPARED: usize = 64;

/// `secure_delete = FAST` overwrites deleted and replaced values within their page, without more writes. Free pages may
/// keep old bytes until `VACUUM`.
const WRITER: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                      PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 200; \
                      PRAGMA wal_autocheckpoint = 0; PRAGMA secure_delete = FAST";

const READER: &str = "PRAGMA busy_timeout = 200; PRAGMA query_only = ON";

/// A truncating checkpoint keeps writers out while it waits for readers. Its wait is shorter than a writer's time
/// limit.
const CHECKPOINTER: &str = "PRAGMA synchronous = FULL; PRAGMA busy_timeout = 50; \
                            PRAGMA wal_autocheckpoint = 0";

pub(super) async fn open(url: &SecretUrl, timeouts: Timeouts) -> anyhow::Result<Database> {
    let file = file_of(url);
    let in_memory = file.is_none().then(in_memory_name);
    let options = connect_options(url, in_memory.as_deref())?;
    let _migrating = match &file {
        Some(file) => Some(lock_for_migrating(file).await?),
        None => None,
    };
    let writer = pool(1, WRITER)
        // An in-memory database ends with its connections.
        .min_connections(u32::from(file.is_none()))
        .connect_lazy_with(options.clone());
    let mut connection = writer.acquire().await?;
    migrate(&mut connection, MIGRATIONS).await?;
    let path = match &in_memory {
        Some(name) => name.clone(),
        // The path as sqlx parsed it from the URL.
        None => {
            sqlx::query_scalar("SELECT file FROM pragma_database_list WHERE name = 'main'")
                .fetch_one(&mut *connection)
                .await?
        }
    };
    drop(connection);
    let native = open_native(&path, in_memory.is_some())?;
    let turn = WriteTurn::new(native, timeouts.acquire);
    let (reader, checkpoints) = if file.is_some() {
        let reader = pool(READERS, READER).connect_lazy_with(options.clone());
        warm(&reader, 1).await?;
        let checkpoints = pool(1, CHECKPOINTER).connect_lazy_with(options);
        let checkpoints = Checkpoints::start(checkpoints, turn.clone());
        (
            DatabaseConnections::new(reader, None, timeouts, Doubt::default()),
            Some(checkpoints.into()),
        )
    } else {
        // Without a log, a reader blocks writers, too.
        (
            DatabaseConnections::new(
                writer.clone(),
                Some(turn.clone()),
                timeouts,
                Doubt::default(),
            ),
            None,
        )
    };
    Ok(Database {
        dialect: SqlDialect::Sqlite,
        reader,
        writer: DatabaseConnections::new(writer, Some(turn.clone()), timeouts, Doubt::default()),
        turn: Some(turn),
        checkpoints,
        follower: None,
        shared: Default::default(),
    })
}

pub(super) fn probe(url: &SecretUrl) -> anyhow::Result<String> {
    let Some(file) = file_of(url) else {
        return Ok("in memory".into());
    };
    if !file.exists() {
        return Ok("the file does not exist yet; a gateway creates it".into());
    }
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let native = rusqlite::Connection::open_with_flags(&file, read_only)?;
    native.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok("reached".into())
}

/// Returns a name for an in-memory database that several connections can open. `memdb` shares a database within the
/// process if its name begins with `/`; other names belong to one connection. A shared cache would also work, but its
/// table locks fail without a wait.
fn in_memory_name() -> String {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    format!("/weir-{}", OPENED.fetch_add(1, Ordering::Relaxed))
}

fn connect_options(url: &SecretUrl, in_memory: Option<&str>) -> anyhow::Result<AnyConnectOptions> {
    let url = url.expose();
    let url = match in_memory {
        Some(name) => format!("sqlite:{name}?mode=rwc&vfs=memdb"),
        None if url.contains('?') => format!("{url}&mode=rwc"),
        None => format!("{url}?mode=rwc"),
    };
    url.parse().context("`database_url` is not a URL")
}

fn open_native(path: &str, in_memory: bool) -> rusqlite::Result<rusqlite::Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let native = if in_memory {
        rusqlite::Connection::open_with_flags_and_vfs(path, flags, c"memdb")
    } else {
        rusqlite::Connection::open_with_flags(path, flags)
    }?;
    native.execute_batch(WRITER)?;
    native.set_prepared_statement_cache_capacity(PREPARED);
    Ok(native)
}

fn pool(connections: u32, pragmas: &'static str) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(connections)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .acquire_timeout(START_TIMEOUT)
        .after_connect(move |connection, _| {
            Box::pin(async move { connection.execute(pragmas).await.map(drop) })
        })
}

/// Another process uses a SQLite file.
#[derive(Debug, thiserror::Error)]
#[error(
    "another weir is serving from {}, or a command uses that file; stop it, or give this gateway its own `data_dir`",
    .0.display()
)]
pub struct DatabaseInUse(PathBuf);

/// Makes this process the only gateway on a SQLite file: two gateways would each trust a cache of their own. Returns
/// [`DatabaseInUse`] if another process serves from the file or works on it. The lock lasts until the returned value is
/// dropped, or the process ends.
pub fn lock_for_serving(url: &SecretUrl) -> anyhow::Result<Option<FileLock>> {
    lock(url, FileLock::try_exclusive)
}

/// Locks a SQLite file for a process that changes data that a gateway caches. Any number may work at once while no
/// gateway serves.
pub fn lock_for_working(url: &SecretUrl) -> anyhow::Result<Option<FileLock>> {
    lock(url, FileLock::try_shared)
}

fn lock(
    url: &SecretUrl,
    take: impl Fn(&Path) -> anyhow::Result<Option<FileLock>>,
) -> anyhow::Result<Option<FileLock>> {
    let Some(database) = file_of(url) else {
        return Ok(None);
    };
    match take(&beside(&database, "serving"))? {
        Some(lock) => Ok(Some(lock)),
        None => Err(DatabaseInUse(database).into()),
    }
}

/// Returns the file of a SQLite database; `None` for another database or an in-memory one.
pub fn file_of(url: &SecretUrl) -> Option<PathBuf> {
    let url = url.expose();
    let path = url.strip_prefix("sqlite:")?.split('?').next()?;
    let path = path.strip_prefix("//").unwrap_or(path);
    (!url.contains(":memory:")).then(|| PathBuf::from(path))
}

/// Waits for the lock, which its holder releases within moments. SQLite itself has no lock that spans the check of
/// the schema and its change.
async fn lock_for_migrating(database: &Path) -> anyhow::Result<FileLock> {
    let path = beside(database, "migrating");
    tokio::task::spawn_blocking(move || FileLock::exclusive(&path)).await?
}

fn beside(database: &Path, what: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(format!(".{what}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_found_in_the_url() {
        for (url, file) in [
            ("sqlite:.weir/weir.db", Some(".weir/weir.db")),
            ("sqlite:/var/lib/w.db?x=y", Some("/var/lib/w.db")),
            ("sqlite:///var/lib/w.db", Some("/var/lib/w.db")),
            ("sqlite::memory:", None),
            ("postgres://host/name", None),
        ] {
            assert_eq!(
                file_of(&SecretUrl::new(url)),
                file.map(PathBuf::from),
                "{url}"
            );
        }
    }
}
