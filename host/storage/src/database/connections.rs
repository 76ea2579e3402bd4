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

use super::server_role::Doubt;
use super::timeouts::Timeouts;
use super::write_turn::{WriteTurn, WriteTurnGuard};

/// A pool of connections; `&Connections` is an executor. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DatabaseConnections {
    pool: AnyPool,
    /// The write turn that SQLite's writers need.
    turn: Option<WriteTurn>,
    acquire_within: Duration,
    limits: StatementLimits,
}

/// The time limit of a statement, and the doubt that its error may raise.
#[derive(Debug, Clone)]
struct StatementLimits {
    timeout: Duration,
    doubt: Doubt,
}

/// A transaction; `&mut Transaction` is an executor. On drop it rolls back before it releases the turn.
#[derive(Debug)]
pub struct Transaction {
    inner: sqlx::Transaction<'static, Any>,
    limits: StatementLimits,
    _turn: Option<WriteTurnGuard>,
}

/// A read-only transaction without a time limit; `&mut *snapshot` is an executor.
#[derive(Debug)]
pub struct Snapshot(Transaction);

impl DatabaseConnections {
    pub(super) fn new(
        pool: AnyPool,
        turn: Option<WriteTurn>,
        timeouts: Timeouts,
        doubt: Doubt,
    ) -> Self {
        Self {
            pool,
            turn,
            acquire_within: timeouts.acquire,
            limits: StatementLimits {
                timeout: timeouts.statement,
                doubt,
            },
        }
    }

    pub(super) fn with_timeouts(&self, timeouts: Timeouts) -> Self {
        let doubt = self.limits.doubt.clone();
        Self::new(self.pool.clone(), self.turn.clone(), timeouts, doubt)
    }

    pub(super) async fn begin(&self, statement: &'static str) -> sqlx::Result<Transaction> {
        self.limits.run(self.begin_patiently(statement)).await
    }

    pub(super) async fn snapshot(&self, statement: &'static str) -> sqlx::Result<Snapshot> {
        let begun = self.begin_patiently(statement).await;
        begun
            .map(Snapshot)
            .inspect_err(|error| self.limits.doubt.consider(error))
    }

    async fn begin_patiently(&self, statement: &'static str) -> sqlx::Result<Transaction> {
        let (turn, connection) = self.acquire().await?;
        let statement = Some(statement.into_sql_str());
        Ok(Transaction {
            inner: sqlx::Transaction::begin(connection, statement).await?,
            limits: self.limits.clone(),
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
        tokio::time::timeout(self.acquire_within, acquired)
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
        self.limits.run(self.inner.commit()).await
    }

    /// Rolls back now; a drop rolls back a moment later.
    pub async fn rollback(self) -> sqlx::Result<()> {
        self.limits.run(self.inner.rollback()).await
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

impl StatementLimits {
    /// Runs a statement in time. A time-out becomes an I/O error, as a lost connection would.
    async fn run<T>(&self, statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
        let outcome = tokio::time::timeout(self.timeout, statement).await;
        let outcome = outcome.unwrap_or_else(|_| {
            Err(sqlx::Error::Io(io::Error::new(
                io::ErrorKind::TimedOut,
                "the database did not respond in time",
            )))
        });
        outcome.inspect_err(|error| self.doubt.consider(error))
    }

    /// Reads all rows before it returns the first: the time limit is for the database and not for the caller's work
    /// between two rows.
    fn steps<'e>(
        &'e self,
        statement: impl Future<Output = sqlx::Result<Vec<QueryStep>>> + Send + 'e,
    ) -> BoxStream<'e, sqlx::Result<QueryStep>> {
        stream::once(self.run(statement))
            .map_ok(|steps| stream::iter(steps.into_iter().map(Ok)))
            .try_flatten()
            .boxed()
    }
}

type QueryStep = Either<AnyQueryResult, AnyRow>;

impl<'c> Executor<'c> for &'c DatabaseConnections {
    type Database = Any;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, sqlx::Result<QueryStep>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Any>,
    {
        self.limits.steps(async move {
            let (_turn, mut connection) = self.acquire().await?;
            connection.fetch_many(query).try_collect().await
        })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<AnyRow>>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Any>,
    {
        Box::pin(self.limits.run(async move {
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
        Box::pin(self.limits.run(async move {
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
        self.limits
            .steps((*self.inner).fetch_many(query).try_collect())
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<AnyRow>>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Any>,
    {
        Box::pin(self.limits.run((*self.inner).fetch_optional(query)))
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [AnyTypeInfo],
    ) -> BoxFuture<'e, sqlx::Result<AnyStatement>>
    where
        'c: 'e,
    {
        Box::pin(self.limits.run((*self.inner).prepare_with(sql, parameters)))
    }
}
