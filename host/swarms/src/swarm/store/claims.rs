//! Claims of runs by executors.

use sqlx::Row;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;

use super::leased::{Lease, LeaseError, LeasedTransaction};
use super::{SwarmStore, SwarmStoreError, outline};
use crate::swarm::record::{CONTENT_CHARS, SwarmOutcome, SwarmStatus, cut};
use crate::swarm::record_of;

/// The maximum users that a claim tries, one after another, if other executors are faster.
const TURNS: i64 = 8;

/// The users in claim order; parameters: the time, the maximum number, and the executor with the most runs that it may have of one
/// user. A run that waits without an executor has a time in `lease_until`, too. The statement steps from one user with
/// unfinished runs to the next by an index, so that it reads no finished run.
pub const TURNS_STATEMENT: &str = "WITH RECURSIVE open_users (user_id) AS ( \
     SELECT MIN(user_id) FROM swarm_runs WHERE ended_at IS NULL UNION ALL \
     SELECT (SELECT MIN(user_id) FROM swarm_runs WHERE ended_at IS NULL AND user_id > open_users.user_id) \
     FROM open_users WHERE open_users.user_id IS NOT NULL) \
     SELECT open_users.user_id FROM open_users \
     LEFT JOIN swarm_users ON swarm_users.user_id = open_users.user_id \
     WHERE (SELECT waiting.id FROM swarm_runs AS waiting WHERE waiting.ended_at IS NULL \
     AND waiting.user_id = open_users.user_id AND waiting.lease_until <= $1 \
     ORDER BY waiting.lease_until, waiting.id LIMIT 1) IS NOT NULL \
     AND (SELECT COUNT(*) FROM swarm_runs AS running WHERE running.ended_at IS NULL \
     AND running.user_id = open_users.user_id AND running.lease_until > $1 AND running.lease_owner = $3) < $4 \
     ORDER BY (SELECT COUNT(*) FROM swarm_runs AS running WHERE running.ended_at IS NULL \
     AND running.user_id = open_users.user_id AND running.lease_until > $1), \
     COALESCE(swarm_users.last_begun_at, 0), \
     (SELECT waiting.id FROM swarm_runs AS waiting WHERE waiting.ended_at IS NULL \
     AND waiting.user_id = open_users.user_id AND waiting.lease_until <= $1 \
     ORDER BY waiting.lease_until, waiting.id LIMIT 1) LIMIT $2";

/// The next run of a user: the oldest with an expired lease, else the oldest queued one; parameters: the user, and the
/// time.
pub fn oldest_statement(dialect: SqlDialect) -> String {
    // Ids are ordered by time. The index of all runs of the user has another order, so that no planner prefers it.
    let oldest = |limit| {
        format!(
            "SELECT id FROM swarm_runs WHERE user_id = $1 AND ended_at IS NULL AND lease_until <= $2 \
             ORDER BY lease_until = 0, id LIMIT {limit}"
        )
    };
    match dialect {
        SqlDialect::Sqlite => oldest(1),
        // PostgreSQL reads only the index for the inner statement, and locks one of few rows.
        SqlDialect::Postgres => format!(
            "SELECT id FROM swarm_runs WHERE id IN ({}) AND ended_at IS NULL AND lease_until <= $2 \
             ORDER BY lease_until = 0, id LIMIT 1 FOR UPDATE SKIP LOCKED",
            oldest(TURNS)
        ),
    }
}

impl SwarmStore {
    /// Cancels a run. A run without an executor ends here, with this outcome and event; the executor of any other one ends it.
    /// Returns whether the cancellation is new.
    pub async fn cancel(&self, run_id: &str, now: Millis) -> Result<bool, SwarmStoreError> {
        let is_new = outline::request_cancel(&self.database, run_id, now).await?;
        let Some(mut run) = self.find(run_id).await?.filter(|run| !run.status.is_over()) else {
            return Ok(is_new);
        };
        let results = self.agents(run_id).await?;
        let mut transaction = self.database.begin().await?;
        let taken = sqlx::query(
            "UPDATE swarm_runs SET fence = fence + 1, lease_owner = NULL, lease_until = 0 WHERE id = $1 AND ended_at IS NULL \
             AND (lease_until <= $2 OR lease_owner IS NULL) AND fence = $3 RETURNING user_id, last_event",
        )
        .bind(run_id)
        .bind(now.0)
        .bind(run.fence)
        .fetch_optional(&mut transaction)
        .await?;
        let Some(taken) = taken else {
            return Ok(is_new);
        };
        let last = results
            .into_iter()
            .filter_map(|agent| agent.result)
            .next_back();
        let content = last.map(|result| result.output).unwrap_or_default();
        let outcome = SwarmOutcome {
            content: cut(&content, CONTENT_CHARS).to_owned(),
            error: None,
        };
        run.status = SwarmStatus::Cancelled;
        run.waiting = None;
        run.outcome = Some(outcome.clone());
        let mut write = LeasedTransaction::of(self, run_id, transaction, &taken, now)?;
        let end = async {
            write.tell("swarm_done", &record_of(&run)).await?;
            write
                .end_run(SwarmStatus::Cancelled, &outcome, None)
                .await?;
            write.commit().await
        };
        match end.await {
            Err(LeaseError::Store(error)) => Err(error),
            Err(LeaseError::Lost) | Ok(()) => Ok(is_new),
        }
    }

    /// Ends cancelled runs without an executor: an operator's command only records that a run is to be cancelled.
    pub async fn end_cancelled(&self, now: Millis) -> Result<(), SwarmStoreError> {
        let cancelled: Vec<String> = sqlx::query_scalar(
            "SELECT id FROM swarm_runs WHERE ended_at IS NULL AND cancel_requested_at IS NOT NULL \
             AND (lease_until <= $1 OR lease_owner IS NULL)",
        )
        .bind(now.0)
        .fetch_all(self.database.reader())
        .await?;
        for id in cancelled {
            self.cancel(&id, now).await?;
        }
        Ok(())
    }

    /// Claims a run that is queued, or whose lease has expired; `None` if there is none. The user with the fewest
    /// running runs comes first, then the user whose runs have waited longest. A user has no turn while the executor
    /// has `share` of their runs: if these wait for something, the runs of others go on.
    ///
    /// The cost grows with the number of users with unfinished runs, not with their history: each user has at most
    /// [`MAX_OPEN`] unfinished runs, and the statement reads nothing else.
    pub async fn claim(
        &self,
        owner: &str,
        share: u32,
        now: Millis,
        until: Millis,
    ) -> Result<Option<Lease>, SwarmStoreError> {
        // This read is outside a transaction: usually no run is waiting, and writers must not queue behind it.
        let users: Vec<String> = sqlx::query_scalar(TURNS_STATEMENT)
            .bind(now.0)
            .bind(TURNS)
            .bind(owner)
            .bind(i64::from(share))
            .fetch_all(self.database.reader())
            .await?;
        if users.is_empty() {
            return Ok(None);
        }
        let mut transaction = self.database.begin().await?;
        let oldest = oldest_statement(self.database.dialect());
        for user_id in users {
            let run = sqlx::query(sqlx::AssertSqlSafe(oldest.clone()))
                .bind(&*user_id)
                .bind(now.0)
                .fetch_optional(&mut transaction)
                .await?;
            // If another executor has just claimed it, the next user has a turn.
            let Some(run) = run else { continue };
            let id: String = run.try_get("id")?;
            let claimed = sqlx::query(
                "UPDATE swarm_runs SET fence = fence + 1, \
                 recoveries = recoveries + CASE WHEN status = 'running' AND lease_owner IS NOT NULL THEN 1 ELSE 0 END, \
                 status = 'running', \
                 lease_owner = $1, lease_until = $2 WHERE id = $3 RETURNING fence",
            )
            .bind(owner)
            .bind(until.0)
            .bind(&*id)
            .fetch_one(&mut transaction)
            .await?;
            let fence: i64 = claimed.try_get("fence")?;
            if fence == 1 {
                sqlx::query(
                    "INSERT INTO swarm_users (user_id, last_begun_at, kept_bytes) VALUES ($1, $2, 0) \
                     ON CONFLICT (user_id) DO UPDATE SET last_begun_at = excluded.last_begun_at",
                )
                .bind(&*user_id)
                .bind(now.0)
                .execute(&mut transaction)
                .await?;
            }
            transaction.commit().await?;
            return Ok(Some(Lease { run_id: id, fence }));
        }
        // PostgreSQL has locked each row that another executor claimed between the two reads. Without this wait, the next
        // claims might still skip it.
        transaction.rollback().await?;
        Ok(None)
    }

    /// Renews a lease. Returns whether it was still valid.
    pub async fn renew(&self, lease: &Lease, now: Millis, until: Millis) -> sqlx::Result<bool> {
        let renewed = sqlx::query(
            "UPDATE swarm_runs SET lease_until = $1 WHERE id = $2 AND fence = $3 AND lease_until > $4 \
             AND ended_at IS NULL",
        )
        .bind(until.0)
        .bind(&*lease.run_id)
        .bind(lease.fence)
        .bind(now.0)
        .execute(self.database.writer())
        .await?;
        Ok(renewed.rows_affected() == 1)
    }

    /// Releases a lease, so that another executor can continue at once.
    pub async fn give_up(&self, lease: &Lease) -> sqlx::Result<()> {
        sqlx::query(
            "UPDATE swarm_runs SET status = 'queued', lease_owner = NULL, lease_until = 0 WHERE id = $1 AND fence = $2 \
             AND ended_at IS NULL",
        )
        .bind(&*lease.run_id)
        .bind(lease.fence)
        .execute(self.database.writer())
        .await
        .map(drop)
    }
}
