//! Connections with a time limit on each statement.
//!
//! sqlx bounds the wait for a connection, but not for a response: a stopped or unreachable server would hold a
//! request until TCP gives up. These executors therefore wrap sqlx's own pool and transaction, and no caller can
//! forget the time-out.

use std::future::Future;
use std::io;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use sqlx::any::{AnyQueryResult, AnyRow, AnyStatement, AnyTypeInfo};
use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool, Either, Execute, Executor, SqlSafeStr, SqlStr};

use super::timeouts::Timeouts;
use super::write_turn::{WriteTurn, WriteTurnGuard};

/// A pool of connections; `&Connections` is an executor. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DatabaseConnections {
    pool: AnyPool,
    /// The write turn that SQLite's writers need.
    turn: Option<WriteTurn>,
    timeouts: Timeouts,
}

/// A transaction; `&mut Transaction` is an executor. On drop it rolls back before it releases the turn.
#[derive(Debug)]
pub struct Transaction {
    inner: sqlx::Transaction<'static, Any>,
    timeout: Duration,
    _turn: Option<WriteTurnGuard>,
}

/// A read-only transaction without a time limit; `&mut *snapshot` is an executor.
#[derive(Debug)]
pub struct Snapshot(Transaction);

impl DatabaseConnections {
    pub(super) fn new(pool: AnyPool, turn: Option<WriteTurn>, timeouts: Timeouts) -> Self {
        Self {
            pool,
            turn,
            timeouts,
        }
    }

    pub(super) async fn begin(&self, statement: &'static str) -> sqlx::Result<Transaction> {
        in_time(self.timeouts.statement, self.begin_patiently(statement)).await
    }

    pub(super) async fn snapshot(&self, statement: &'static str) -> sqlx::Result<Snapshot> {
        self.begin_patiently(statement).await.map(Snapshot)
    }

    async fn begin_patiently(&self, statement: &'static str) -> sqlx::Result<Transaction> {
        let (turn, connection) = self.acquire().await?;
        let statement = Some(statement.into_sql_str());
        Ok(Transaction {
            inner: sqlx::Transaction::begin(connection, statement).await?,
            timeout: self.timeouts.statement,
            _turn: turn,
        })
    }

    /// Acquires a connection in time. The pool itself waits longer, for the sake of the start. The turn must be
    /// dropped after the connection.
    async fn acquire(&self) -> sqlx::Result<(Option<WriteTurnGuard>, PoolConnection<Any>)> {
        let acquired = async {
            let turn = match &self.turn {
                Some(turn) => Some(turn.take().await),
                None => None,
            };
            Ok((turn, self.pool.acquire().await?))
        };
        tokio::time::timeout(self.timeouts.acquire, acquired)
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

impl Transaction {
    /// Commits. After an error the transaction may be committed or not: only the response is lost.
    pub async fn commit(self) -> sqlx::Result<()> {
        in_time(self.timeout, self.inner.commit()).await
    }

    /// Rolls back now; a drop rolls back a moment later.
    pub async fn rollback(self) -> sqlx::Result<()> {
        in_time(self.timeout, self.inner.rollback()).await
    }
}

impl Snapshot {
    /// Rolls back now; a drop rolls back a moment later.
    pub async fn rollback(self) -> sqlx::Result<()> {
        self.0.rollback().await
    }
}

impl Deref for Snapshot {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.0.inner
    }
}

impl DerefMut for Snapshot {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.0.inner
    }
}

/// Runs a future with the time limit. A time-out becomes an I/O error, as a lost connection would.
async fn in_time<T>(
    timeout: Duration,
    statement: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    match tokio::time::timeout(timeout, statement).await {
        Ok(outcome) => outcome,
        Err(_) => Err(sqlx::Error::Io(io::Error::new(
            io::ErrorKind::TimedOut,
            "the database did not respond in time",
        ))),
    }
}

type QueryStep = Either<AnyQueryResult, AnyRow>;

/// Reads all rows before it returns the first: the time limit is for the database and not for the caller's work
/// between two rows.
fn steps<'e>(
    timeout: Duration,
    statement: impl Future<Output = sqlx::Result<Vec<QueryStep>>> + Send + 'e,
) -> BoxStream<'e, sqlx::Result<QueryStep>> {
    stream::once(in_time(timeout, statement))
        .map_ok(|steps| stream::iter(steps.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

impl<'c> Executor<'c> for &'c DatabaseConnections {
    type Database = Any;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, sqlx::Result<QueryStep>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Any>,
    {
        steps(self.timeouts.statement, async move {
            let (_turn, mut connection) = self.acquire().await?;
            connection.fetch_many(query).try_collect().await
        })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<AnyRow>>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Any>,
    {
        Box::pin(in_time(self.timeouts.statement, async move {
            let (_turn, mut connection) = self.acquire().await?;
            connection.fetch_optional(query).await
        }))
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [AnyTypeInfo],
    ) -> BoxFuture<'e, sqlx::Result<AnyStatement>>
    where
        'c: 'e,
    {
        Box::pin(in_time(self.timeouts.statement, async move {
            let (_turn, mut connection) = self.acquire().await?;
            connection.prepare_with(sql, parameters).await
        }))
    }
}

impl<'c> Executor<'c> for &'c mut Transaction {
    type Database = Any;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, sqlx::Result<QueryStep>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Any>,
    {
        steps(self.timeout, (*self.inner).fetch_many(query).try_collect())
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<AnyRow>>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Any>,
    {
        Box::pin(in_time(self.timeout, (*self.inner).fetch_optional(query)))
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [AnyTypeInfo],
    ) -> BoxFuture<'e, sqlx::Result<AnyStatement>>
    where
        'c: 'e,
    {
        Box::pin(in_time(
            self.timeout,
            (*self.inner).prepare_with(sql, parameters),
        ))
    }
}
