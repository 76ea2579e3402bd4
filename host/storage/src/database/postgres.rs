//! PostgreSQL: a read pool, a write pool, and the limits that the server enforces.
//!
//! A server may lose its role while connections to it stay open, and its address may lead to a standby for some seconds. Such a
//! server answers, and refuses each write. A connection is therefore usable only if its server is the primary: weir asks when it
//! connects, when a connection was idle, and on each use after a statement failed for that reason. If the URL names several
//! servers, [`Servers`] finds the primary.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use sqlx::any::AnyPoolOptions;
use sqlx::{AnyConnection, AnyPool, Connection, Executor, Row};
use tokio_util::task::AbortOnDropHandle;

use super::server_role::{Doubt, Role};
use super::servers::{READ_ONLY, Servers};
use super::{
    Database, DatabaseConnections, Migrations, START_TIMEOUT, SqlDialect, Timeouts, migrate, warm,
};
use crate::ids;
use crate::secrets::SecretUrl;

const MIGRATIONS: &Migrations = include!(concat!(env!("OUT_DIR"), "/migrations_postgres.rs"));

/// Connections of one process: with both pools, six nodes fit into PostgreSQL's default of 100.
const READERS: u32 = 8;
const WRITERS: u32 = 8;

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

pub(super) async fn open(url: &SecretUrl, timeouts: Timeouts) -> anyhow::Result<Database> {
    let servers = Servers::of(url)?;
    let mut connection = servers.wait_for_writer().await?;
    refuse_shared_sessions(&servers, &mut connection).await?;
    connection.close().await?;
    let doubt = Doubt::default();
    let pool = |connections, role| {
        let options = servers.options().clone();
        pool(connections, role, timeouts.statement, &doubt, &servers).connect_lazy_with(options)
    };
    let (writer, reader) = (pool(WRITERS, Role::Writer), pool(READERS, Role::Reader));
    migrate_patiently(&writer).await?;
    warm(&writer, KEPT_WARM as usize).await?;
    warm(&reader, KEPT_WARM as usize).await?;
    let follower = servers.follow([writer.clone(), reader.clone()], doubt.clone());
    let follower = follower.map(|task| Arc::new(AbortOnDropHandle::new(tokio::spawn(task))));
    Ok(Database {
        dialect: SqlDialect::Postgres,
        reader: DatabaseConnections::new(reader, None, timeouts, doubt.clone()),
        writer: DatabaseConnections::new(writer, None, timeouts, doubt),
        turn: None,
        checkpoints: None,
        follower,
        shared: Default::default(),
    })
}

pub(super) async fn probe(url: &SecretUrl) -> anyhow::Result<String> {
    let servers = Servers::of(url)?;
    let (name, mut connection) = servers.probe().await?;
    refuse_shared_sessions(&servers, &mut connection).await?;
    Ok(match name {
        Some(name) => format!("reached {name}, which accepts writes"),
        None => "reached, and accepts writes".into(),
    })
}

/// Fails if a pooler lends the same server session to several connections in turn. weir's sessions have settings, prepared
/// statements and locks: there they would fail, and reach other programs of the pool.
async fn refuse_shared_sessions(
    servers: &Servers,
    first: &mut AnyConnection,
) -> anyhow::Result<()> {
    // A simple query prepares nothing on the session.
    let session = async |connection: &mut AnyConnection| -> sqlx::Result<i32> {
        let row = sqlx::raw_sql("SELECT pg_backend_pid()")
            .fetch_one(connection)
            .await?;
        row.try_get(0)
    };
    let mut second = servers.connect().await?;
    let mut seen = Vec::new();
    // A pooler gives the session that it used last, or that it has not used for longest. The second query in a row shows the
    // latter: with as many free sessions as connections, queries in turn would get the same ones each time.
    for _ in 0..2 {
        for _ in 0..2 {
            seen.push((session(first).await?, session(&mut second).await?));
        }
        session(first).await?;
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

/// Migrates without the requests' time limit. sqlx takes an advisory lock around migrations; a wait for it, or for
/// the change of a large table, takes longer than a request may. The connection is not used for requests again.
async fn migrate_patiently(writer: &AnyPool) -> anyhow::Result<()> {
    let mut connection = writer.acquire().await?;
    connection.execute("SET statement_timeout = 0").await?;
    migrate(&mut connection, MIGRATIONS).await?;
    connection.close().await?;
    Ok(())
}

fn pool(
    connections: u32,
    role: Role,
    statement: Duration,
    doubt: &Doubt,
    servers: &Servers,
) -> AnyPoolOptions {
    let (doubt, servers) = (doubt.clone(), servers.clone());
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
            let is_former = servers.may_have_changed(usage.age);
            let is_doubtful = usage.idle_for > TRUSTED || doubt.is_raised();
            Box::pin(async move {
                match is_doubtful {
                    _ if is_former => Ok(false),
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
