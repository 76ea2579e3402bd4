//! The log of a run's settlements: see [`crate::log`].

use rusqlite::Connection;
use serde::de::DeserializeOwned;
use sqlx::{AssertSqlSafe, Row as _};
use weir_storage::clock::Millis;
use weir_storage::database::{Transaction, WriteTurn};

use super::error::{CommitFailure, LedgerStoreError};
use super::sqlite::{CachedAccounts, WriteTransaction};
use super::{LedgerStore, rows};
use crate::log::{Append, LogCheckpoint, LogRecord};
use crate::operation::BootId;

/// Rows of ended runs that are read at once.
const READ: i64 = 16;

/// A run's lease after its renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenewedLease {
    /// The number of times that other nodes have ended the run.
    pub fence: i64,
    /// Whether each live node folds the logs of others: nodes of an earlier release would return blocks without it.
    pub all_fold: bool,
}

/// A row of the log of a run without a valid lease.
#[derive(Debug)]
pub(crate) struct EndedLog {
    pub run: BootId,
    pub ordinal: i64,
    pub content: LogContent,
}

#[derive(Debug)]
pub(crate) enum LogContent {
    Records(Vec<LogRecord>),
    /// Checkpoints, and the stored row.
    Checkpoints(Vec<LogCheckpoint>, String),
}

/// Returns the condition that a run may append to its log, or has one that is not folded. A run has no lease if it ended
/// long ago.
pub(super) fn may_append(boot_id: &str) -> String {
    format!(
        "(EXISTS (SELECT 1 FROM node_leases n WHERE n.boot_id = {boot_id} AND n.fenced_at IS NULL) \
         OR EXISTS (SELECT 1 FROM ledger_log g WHERE g.boot_id = {boot_id}))"
    )
}

/// Returns whether a run may still use its blocks.
pub(super) async fn may_use_blocks(
    transaction: &mut Transaction,
    run: &BootId,
    now: Millis,
) -> Result<bool, CommitFailure> {
    let statement = format!(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1) one WHERE {} OR EXISTS \
         (SELECT 1 FROM node_leases WHERE boot_id = $1 AND lease_until > $2)",
        may_append("$1")
    );
    let found: i64 = sqlx::query_scalar(AssertSqlSafe(statement))
        .bind(run.as_str())
        .bind(now.0)
        .fetch_one(transaction)
        .await?;
    Ok(found > 0)
}

/// Deletes the folded rows, and appends one if the run has this fence. The share lock makes a node that raises the fence
/// wait, and makes the append see the new one.
const APPEND: &str = "WITH folded AS (DELETE FROM ledger_log WHERE boot_id = $1 AND ordinal BETWEEN 1 AND $5) \
     INSERT INTO ledger_log (boot_id, ordinal, records) SELECT $1, $2, $3 WHERE EXISTS \
     (SELECT 1 FROM node_leases WHERE boot_id = $1 AND fence = $4 FOR SHARE) ON CONFLICT DO NOTHING";

/// Appends a row in SQLite if the run has this fence.
const APPEND_ALONE: &str = "INSERT INTO ledger_log (boot_id, ordinal, records) SELECT ?1, ?2, ?3 WHERE EXISTS \
     (SELECT 1 FROM node_leases WHERE boot_id = ?1 AND fence = ?4) ON CONFLICT DO NOTHING";

const DELETE: &str = "DELETE FROM ledger_log WHERE boot_id = $1 AND ordinal BETWEEN 1 AND $2";

const IS_APPENDED: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM ledger_log l JOIN node_leases n ON n.boot_id = l.boot_id \
     WHERE l.boot_id = $1 AND l.ordinal = $2 AND n.fence = $3";

/// Replaces the row of checkpoints, as [`APPEND`] appends others.
const NOTE: &str = "INSERT INTO ledger_log (boot_id, ordinal, records) SELECT $1, 0, $2 WHERE EXISTS \
     (SELECT 1 FROM node_leases WHERE boot_id = $1 AND fence = $3 FOR SHARE) \
     ON CONFLICT (boot_id, ordinal) DO UPDATE SET records = excluded.records";

const FORGET_NOTES: &str = "DELETE FROM ledger_log WHERE boot_id = $1 AND ordinal = 0";

/// The run may go on, and have replaced the row.
const FORGET_ENDED_NOTES: &str =
    "DELETE FROM ledger_log WHERE boot_id = $1 AND ordinal = 0 AND records = $2";

/// A renewal ends a fence's time, but keeps its number, so that nothing from before is appended.
const RENEW: &str = "INSERT INTO node_leases (boot_id, started_at, lease_until, folds_since) VALUES ($1, $2, $3, $2) \
     ON CONFLICT (boot_id) DO UPDATE SET fenced_at = NULL, lease_until = CASE \
     WHEN node_leases.lease_until < excluded.lease_until THEN excluded.lease_until ELSE node_leases.lease_until END \
     RETURNING fence, (SELECT CAST(COUNT(*) AS BIGINT) FROM node_leases others \
     WHERE others.lease_until > $2 AND others.folds_since IS NULL AND others.boot_id <> $1) AS others";

const FENCE: &str = "UPDATE node_leases SET fence = fence + 1, fenced_at = $1 \
     WHERE lease_until <= $1 AND fenced_at IS NULL";

/// On SQLite, one process serves at a time, so all other runs have ended.
const FENCE_OTHERS: &str = "UPDATE node_leases SET fence = fence + 1, fenced_at = $1 \
     WHERE boot_id <> $2 AND fenced_at IS NULL";

/// SQLite joins in this order, so that it reads no logs of runs that serve.
const ENDED_LOGS: &str = "SELECT l.boot_id, l.ordinal, l.records FROM node_leases n CROSS JOIN ledger_log l \
     WHERE l.boot_id = n.boot_id AND n.fenced_at IS NOT NULL ORDER BY l.ordinal = 0, l.boot_id, l.ordinal LIMIT $1";

impl LedgerStore {
    /// Appends a row to a run's log; returns whether it is there, or else the run's fence has moved. The rows up to `deleted` have
    /// left the log. In SQLite, it blocks the thread.
    ///
    /// # Errors
    ///
    /// The row may be there all the same, unless the database has rejected it.
    pub(crate) async fn append(
        &self,
        run: &BootId,
        append: &Append,
        deleted: i64,
    ) -> Result<bool, LedgerStoreError> {
        let appended = async {
            let written = match self.database.write_turn() {
                Some(turn) => self.append_to_sqlite(turn, run, append, deleted).await?,
                None => {
                    let written = sqlx::query(APPEND)
                        .bind(run.as_str())
                        .bind(append.ordinal)
                        .bind(&append.records)
                        .bind(append.fence)
                        .bind(append.folded)
                        .execute(self.database.writer())
                        .await?;
                    written.rows_affected()
                }
            };
            if written > 0 {
                return Ok(true);
            }
            // An earlier attempt may have appended it.
            let found: i64 = sqlx::query_scalar(IS_APPENDED)
                .bind(run.as_str())
                .bind(append.ordinal)
                .bind(append.fence)
                .fetch_one(self.database.writer())
                .await?;
            Ok::<_, CommitFailure>(found > 0)
        };
        appended.await.map_err(|error| match error.into() {
            LedgerStoreError::Unavailable(error) => LedgerStoreError::Unknown(error),
            rejected => rejected,
        })
    }

    /// Replaces the run's row of checkpoints, if the run has this fence. Without checkpoints, deletes it.
    pub(crate) async fn write_checkpoints(
        &self,
        run: &BootId,
        fence: i64,
        checkpoints: &[LogCheckpoint],
    ) -> sqlx::Result<()> {
        if checkpoints.is_empty() {
            return self.forget_checkpoints(run).await;
        }
        let checkpoints = serde_json::to_string(checkpoints).expect("plain structs serialize");
        sqlx::query(NOTE)
            .bind(run.as_str())
            .bind(checkpoints)
            .bind(fence)
            .execute(self.database.writer())
            .await
            .map(drop)
    }

    /// Deletes a run's row of checkpoints.
    pub(crate) async fn forget_checkpoints(&self, run: &BootId) -> sqlx::Result<()> {
        sqlx::query(FORGET_NOTES)
            .bind(run.as_str())
            .execute(self.database.writer())
            .await
            .map(drop)
    }

    /// Deletes an ended run's row of checkpoints, whose holds have ended.
    pub(crate) async fn forget_ended_checkpoints(
        &self,
        run: &BootId,
        stored: &str,
    ) -> sqlx::Result<()> {
        sqlx::query(FORGET_ENDED_NOTES)
            .bind(run.as_str())
            .bind(stored)
            .execute(self.database.writer())
            .await
            .map(drop)
    }

    /// Appends a row with one statement, or in one transaction with the deletion of the folded ones. It blocks the thread.
    async fn append_to_sqlite(
        &self,
        turn: &WriteTurn,
        run: &BootId,
        append: &Append,
        deleted: i64,
    ) -> Result<u64, CommitFailure> {
        self.write_beside_accounts(turn, |connection| {
            let insert = |connection: &Connection| {
                let row = (run.as_str(), append.ordinal, &append.records, append.fence);
                connection.prepare_cached(APPEND_ALONE)?.execute(row)
            };
            if append.folded <= deleted {
                return insert(connection);
            }
            let transaction = WriteTransaction::begin(connection)?;
            delete(&transaction, run, append.folded)?;
            let written = insert(&transaction)?;
            transaction.commit()?;
            Ok(written)
        })
        .await
        .map(|written| written as u64)
    }

    /// Writes to SQLite, and keeps the remembered accounts, which the write leaves as they are.
    async fn write_beside_accounts<T>(
        &self,
        turn: &WriteTurn,
        write: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, CommitFailure> {
        let mut native = turn.native().await?;
        let mut remembered = self.remembered();
        let before = CachedAccounts::version(&native)?;
        let written = write(&mut native)?;
        remembered.keep_since(before, CachedAccounts::version(&native)?);
        Ok(written)
    }

    /// Deletes the rows of a run's log up to this ordinal, which are folded. In SQLite, it blocks the thread.
    pub(crate) async fn delete_log(
        &self,
        run: &BootId,
        folded: i64,
    ) -> Result<(), LedgerStoreError> {
        let deleted = async {
            match self.database.write_turn() {
                Some(turn) => {
                    self.write_beside_accounts(turn, |connection| delete(connection, run, folded))
                        .await
                }
                None => {
                    let deleted = sqlx::query(DELETE).bind(run.as_str()).bind(folded);
                    let deleted = deleted.execute(self.database.writer()).await;
                    deleted.map(drop).map_err(CommitFailure::from)
                }
            }
        };
        deleted.await.map_err(LedgerStoreError::from)
    }

    /// Begins a run's lease or extends it, and never shortens it.
    pub async fn renew_lease(
        &self,
        boot_id: &BootId,
        now: Millis,
        until: Millis,
    ) -> sqlx::Result<RenewedLease> {
        // All rows are read, because SQLite commits after the last one.
        let rows = sqlx::query(RENEW)
            .bind(boot_id.as_str())
            .bind(now.0)
            .bind(until.0)
            .fetch_all(self.database.writer())
            .await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        Ok(RenewedLease {
            fence: row.try_get(0)?,
            all_fold: row.try_get::<i64, _>(1)? == 0,
        })
    }

    /// Raises the fences of all runs without a valid lease: nothing more is appended to their logs.
    pub(crate) async fn fence_ended_runs(&self, now: Millis) -> sqlx::Result<()> {
        sqlx::query(FENCE)
            .bind(now.0)
            .execute(self.database.writer())
            .await
            .map(drop)
    }

    /// Raises the fences of all other runs, on SQLite: nothing more is appended to their logs.
    pub(crate) async fn fence_other_runs(&self, run: &BootId, now: Millis) -> sqlx::Result<()> {
        sqlx::query(FENCE_OTHERS)
            .bind(now.0)
            .bind(run.as_str())
            .execute(self.database.writer())
            .await
            .map(drop)
    }

    /// Returns the first rows of the logs of ended runs.
    pub(crate) async fn find_ended_logs(&self) -> sqlx::Result<Vec<EndedLog>> {
        let found = sqlx::query(ENDED_LOGS)
            .bind(READ)
            .fetch_all(self.database.writer())
            .await?;
        let read = |row: &sqlx::any::AnyRow| {
            let (ordinal, stored): (i64, String) = (row.try_get(1)?, row.try_get(2)?);
            let (run, content) = match ordinal {
                0 => {
                    let (run, checkpoints) = read_row(row.try_get(0)?, &stored)?;
                    (run, LogContent::Checkpoints(checkpoints, stored))
                }
                _ => {
                    let (run, records) = read_row(row.try_get(0)?, &stored)?;
                    (run, LogContent::Records(records))
                }
            };
            Ok(EndedLog {
                run,
                ordinal,
                content,
            })
        };
        found.iter().map(read).collect()
    }
}

/// Reads a row's run, and its records or checkpoints.
pub(super) fn read_row<T: DeserializeOwned>(
    run: &str,
    content: &str,
) -> sqlx::Result<(BootId, Vec<T>)> {
    let run = BootId::of(run).ok_or_else(|| rows::UnreadableRow::unknown(run))?;
    let content =
        serde_json::from_str(content).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok((run, content))
}

fn delete(connection: &Connection, run: &BootId, folded: i64) -> rusqlite::Result<()> {
    let mut delete = connection.prepare_cached(DELETE)?;
    delete.execute((run.as_str(), folded)).map(drop)
}
