//! PostgreSQL: a read pool, a write pool, and the limits that the server enforces.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, Connection, Executor};

use super::{
    Database, DatabaseConnections, Migrations, START_TIMEOUT, SqlDialect, Timeouts, migrate, warm,
};
use crate::secrets::SecretUrl;

const MIGRATIONS: &Migrations = include!(concat!(env!("OUT_DIR"), "/migrations_postgres.rs"));

/// Connections of one process: with both pools, six nodes fit into PostgreSQL's default of 100.
const READERS: u32 = 8;
const WRITERS: u32 = 8;

/// Time limit for the start of a server that refuses connections.
const SERVER_STARTS_WITHIN: Duration = Duration::from_secs(10);

/// Connections of each pool that are opened before any request needs them.
const KEPT_WARM: u32 = 2;

/// Idle time after which a connection is pinged before use. A ping every time, sqlx's default, would double each
/// statement's latency.
const TRUSTED: Duration = Duration::from_secs(1);

/// Settings of a session. The server cancels a statement at the client's time limit, so abandoned work stops; it also
/// ends the transaction of a dead process, so its row locks do not stay. Notices, such as that a table exists
/// already, are off.
fn session(statement: Duration) -> String {
    format!(
        "SET client_min_messages = warning; SET statement_timeout = {}; \
         SET idle_in_transaction_session_timeout = 5000",
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
    let writer = pool(WRITERS, false, timeouts.statement).connect_lazy_with(options.clone());
    let reader = pool(READERS, true, timeouts.statement).connect_lazy_with(options);
    migrate_patiently(&writer).await?;
    warm(&writer, KEPT_WARM as usize).await?;
    warm(&reader, KEPT_WARM as usize).await?;
    Ok(Database {
        dialect: SqlDialect::Postgres,
        reader: DatabaseConnections::new(reader, None, timeouts),
        writer: DatabaseConnections::new(writer, None, timeouts),
        turn: None,
        checkpoints: None,
        shared: Default::default(),
    })
}

pub(super) async fn probe(url: &SecretUrl) -> anyhow::Result<String> {
    let mut connection = connect(&connect_options(url)?).await?;
    connection.ping().await?;
    Ok("reached".into())
}

/// Waits for a server that starts at the same time as this process. The cause of the failure is logged at once and,
/// if it persists, is the error: a pool would report only its own time-out.
async fn wait_for_server(options: &AnyConnectOptions) -> anyhow::Result<()> {
    let until = Instant::now() + SERVER_STARTS_WITHIN;
    let mut warned = false;
    loop {
        let error = match connect(options).await {
            Ok(connection) => return Ok(connection.close().await?),
            Err(error) => error,
        };
        if !is_starting(&error) || Instant::now() >= until {
            return Err(error.into());
        }
        if !warned {
            tracing::warn!(%error, "the database does not respond; retrying for {} s", SERVER_STARTS_WITHIN.as_secs());
            warned = true;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

async fn connect(options: &AnyConnectOptions) -> sqlx::Result<AnyConnection> {
    let connecting = AnyConnection::connect_with(options);
    let too_late = || io::Error::new(io::ErrorKind::TimedOut, "the database does not respond");
    let connected = tokio::time::timeout(START_TIMEOUT, connecting).await;
    connected.unwrap_or_else(|_| Err(too_late().into()))
}

/// Returns whether no server listens yet, or the server reports that it is starting: `cannot_connect_now`.
fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| code == "57P03"),
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

fn pool(connections: u32, read_only: bool, statement: Duration) -> AnyPoolOptions {
    let session: Arc<str> = session(statement).into();
    AnyPoolOptions::new()
        .min_connections(KEPT_WARM)
        .max_connections(connections)
        .acquire_timeout(START_TIMEOUT)
        .after_connect(move |connection, _| {
            let session = session.clone();
            Box::pin(async move {
                connection.execute(sqlx::AssertSqlSafe(session)).await?;
                if read_only {
                    let read_only = "SET default_transaction_read_only = on";
                    connection.execute(read_only).await?;
                }
                Ok(())
            })
        })
        .test_before_acquire(false)
        .before_acquire(|connection, usage| {
            Box::pin(async move {
                if usage.idle_for > TRUSTED {
                    connection.ping().await?;
                }
                Ok(true)
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
