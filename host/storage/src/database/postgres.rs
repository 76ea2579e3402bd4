//! PostgreSQL: a read pool, a write pool, and the limits that the server enforces.
//!
//! A server may lose its role while connections to it stay open, and its address may lead to a standby for some seconds. Such a
//! server answers, and refuses each write. A connection is therefore usable only if its server is the primary: weir asks when it
//! connects, when a connection was idle, and on each use after a statement failed for that reason.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, Connection, Executor, Row};

use super::server_role::{Doubt, Role};
use super::{
    Database, DatabaseConnections, Migrations, START_TIMEOUT, SqlDialect, Timeouts, migrate, warm,
};
use crate::ids;
use crate::secrets::SecretUrl;

const MIGRATIONS: &Migrations = include!(concat!(env!("OUT_DIR"), "/migrations_postgres.rs"));

/// Connections of one process: with both pools, six nodes fit into PostgreSQL's default of 100.
const READERS: u32 = 8;
const WRITERS: u32 = 8;

/// Time limit for the start of a server that refuses connections.
const SERVER_STARTS_WITHIN: Duration = Duration::from_secs(10);

/// Connections of each pool that are opened before any request needs them.
const KEPT_WARM: u32 = 2;

/// Idle time after which a connection is checked before use. A check every time, sqlx's default, would double each
/// statement's latency.
const TRUSTED: Duration = Duration::from_secs(1);

/// Lifetime of a connection, and its random extension: an address may lead elsewhere without any error, and nodes that started
/// together must not reconnect together.
const LIFETIME: Duration = Duration::from_secs(270);
const LONGER_BY: Duration = Duration::from_secs(60);

/// Settings of a session. The server cancels a statement at the client's time limit, so abandoned work stops; it also ends
/// the transaction of a dead process, so its row locks do not stay. Notices, such as that a table exists already, are off.
fn session(role: Role, statement: Duration) -> String {
    let read_only = match role {
        Role::Writer => "",
        Role::Reader => "; SET default_transaction_read_only = on",
    };
    format!(
        "SET client_min_messages = warning; SET statement_timeout = {}; \
         SET idle_in_transaction_session_timeout = 5000{read_only}",
        statement.as_millis()
    )
}

/// Parameters that sqlx understands. sqlx logs others with their values, which may be secrets under a mistyped name.
const PARAMETERS: &[&str] = &[
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

pub(super) async fn open(url: &SecretUrl, timeouts: Timeouts) -> anyhow::Result<Database> {
    let options = connect_options(url)?;
    wait_for_server(&options).await?;
    let doubt = Doubt::default();
    let pool = |connections, role| {
        let pool = pool(connections, role, timeouts.statement, doubt.clone());
        pool.connect_lazy_with(options.clone())
    };
    let (writer, reader) = (pool(WRITERS, Role::Writer), pool(READERS, Role::Reader));
    migrate_patiently(&writer).await?;
    warm(&writer, KEPT_WARM as usize).await?;
    warm(&reader, KEPT_WARM as usize).await?;
    Ok(Database {
        dialect: SqlDialect::Postgres,
        reader: DatabaseConnections::new(reader, None, timeouts, doubt.clone()),
        writer: DatabaseConnections::new(writer, None, timeouts, doubt),
        turn: None,
        checkpoints: None,
        shared: Default::default(),
    })
}

pub(super) async fn probe(url: &SecretUrl) -> anyhow::Result<String> {
    let options = connect_options(url)?;
    let mut connection = connect(&options).await?;
    refuse_shared_sessions(&options, &mut connection).await?;
    if !Role::Writer.is_served(&mut connection).await? {
        bail!(READ_ONLY);
    }
    Ok("reached, and accepts writes".into())
}

const READ_ONLY: &str = "the server accepts no writes: it is a standby, or read-only";

/// Waits for a server that starts, or takes over, at the same time as this process. The cause of the failure is logged
/// at once and, if it persists, is the error: a pool would report only its own time-out.
async fn wait_for_server(options: &AnyConnectOptions) -> anyhow::Result<()> {
    let until = Instant::now() + SERVER_STARTS_WITHIN;
    let mut warned = false;
    loop {
        let error = match is_there(options).await {
            Ok(mut connection) => {
                refuse_shared_sessions(options, &mut connection).await?;
                return Ok(connection.close().await?);
            }
            Err(error) => error,
        };
        if !is_starting(&error) || Instant::now() >= until {
            return Err(error.into());
        }
        if !warned {
            tracing::warn!(%error, "the database is not available; retrying for {} s", SERVER_STARTS_WITHIN.as_secs());
            warned = true;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Connects to a server that accepts writes.
async fn is_there(options: &AnyConnectOptions) -> sqlx::Result<AnyConnection> {
    let mut connection = connect(options).await?;
    match Role::Writer.is_served(&mut connection).await? {
        true => Ok(connection),
        false => Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, READ_ONLY).into()),
    }
}

/// Fails if a pooler lends the same server session to several connections in turn. weir's sessions have settings, prepared
/// statements and locks: there they would fail, and reach other programs of the pool.
async fn refuse_shared_sessions(
    options: &AnyConnectOptions,
    first: &mut AnyConnection,
) -> anyhow::Result<()> {
    // A simple query prepares nothing on the session.
    let session = async |connection: &mut AnyConnection| -> sqlx::Result<i32> {
        let row = sqlx::raw_sql("SELECT pg_backend_pid()")
            .fetch_one(connection)
            .await?;
        row.try_get(0)
    };
    let mut second = connect(options).await?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.push((session(first).await?, session(&mut second).await?));
    }
    second.close().await?;
    let is_own = seen.iter().all(|pair| *pair == seen[0] && pair.0 != pair.1);
    if !is_own {
        bail!(
            "`database_url` leads to a connection pooler in transaction or statement mode; weir needs session mode, such as \
             `pool_mode = session` of PgBouncer"
        );
    }
    Ok(())
}

async fn connect(options: &AnyConnectOptions) -> sqlx::Result<AnyConnection> {
    let connecting = AnyConnection::connect_with(options);
    let too_late = || io::Error::new(io::ErrorKind::TimedOut, "the database does not respond");
    let connected = tokio::time::timeout(START_TIMEOUT, connecting).await;
    connected.unwrap_or_else(|_| Err(too_late().into()))
}

/// Returns whether a server is likely to accept connections and writes soon: nothing listens yet, it is read-only or
/// `starting up` (57P03), or it has `too many connections` (53300), such as those of nodes that stop.
fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ReadOnlyFilesystem
        ),
        sqlx::Error::Database(error) => error
            .code()
            .is_some_and(|code| ["57P03", "53300"].contains(&&*code)),
        _ => false,
    }
}

/// Migrates without the requests' time limit. sqlx takes an advisory lock around migrations; a wait for it, or for
/// the change of a large table, takes longer than a request may. The connection is not used for requests again.
async fn migrate_patiently(writer: &AnyPool) -> anyhow::Result<()> {
    let mut connection = writer.acquire().await?;
    connection.execute("SET statement_timeout = 0").await?;
    migrate(&mut connection, MIGRATIONS).await?;
    connection.close().await?;
    Ok(())
}

fn connect_options(url: &SecretUrl) -> anyhow::Result<AnyConnectOptions> {
    // The parser's error names the fault and never quotes the URL.
    let mut parsed = url::Url::parse(url.expose()).context("`database_url` is not a URL")?;
    let (known, unknown): (Vec<_>, Vec<_>) = parsed
        .query_pairs()
        .into_owned()
        .partition(|(name, _)| PARAMETERS.contains(&&**name) || name.starts_with("options["));
    for (name, _) in unknown {
        tracing::warn!(parameter = name, "`database_url`: unknown parameter");
    }
    parsed.set_query(None);
    if !known.is_empty() {
        parsed.query_pairs_mut().extend_pairs(known);
    }
    Ok(parsed.as_str().parse()?)
}

fn pool(connections: u32, role: Role, statement: Duration, doubt: Doubt) -> AnyPoolOptions {
    let session: Arc<str> = session(role, statement).into();
    let longer = LONGER_BY * (ids::unlike_any_other() % 100) as u32 / 100;
    AnyPoolOptions::new()
        .min_connections(KEPT_WARM)
        .max_connections(connections)
        .max_lifetime(LIFETIME + longer)
        .acquire_timeout(START_TIMEOUT)
        .after_connect(move |connection, _| {
            let session = session.clone();
            Box::pin(async move {
                connection.execute(sqlx::AssertSqlSafe(session)).await?;
                match role.is_served(connection).await? {
                    true => Ok(()),
                    false => {
                        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, READ_ONLY).into())
                    }
                }
            })
        })
        .test_before_acquire(false)
        .before_acquire(move |connection, usage| {
            let is_doubtful = usage.idle_for > TRUSTED || doubt.is_raised();
            Box::pin(async move {
                match is_doubtful {
                    true => role.is_served(connection).await,
                    false => Ok(true),
                }
            })
        })
        // sqlx waits without limit for a used connection's last response before the connection is free again. An
        // unreachable connection would be missing from the pool until TCP gives up.
        .after_release(move |connection, _| {
            Box::pin(async move {
                tokio::time::timeout(statement, connection.ping())
                    .await
                    .unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
                Ok(true)
            })
        })
}
