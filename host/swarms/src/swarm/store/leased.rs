//! Writes to a run that require its lease.

use serde::Serialize;
use sqlx::Row;
use sqlx::any::AnyRow;
use weir_ledger::Credits;
use weir_storage::clock::Millis;
use weir_storage::database::{Transaction, is_outage};

use super::{CallPrice, StepPosition, SwarmStore, SwarmStoreError, add_price, count_bytes};
use crate::swarm::record::{AgentResult, AgentStatus, RunWait, SwarmOutcome, SwarmStatus};
use crate::swarm::request::SwarmRequest;

/// The right to work on a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub run_id: String,
    /// The number of the claim.
    pub fence: i64,
}

/// The reasons for which a write failed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Another executor owns the run, or may own it.
    #[error("the lease is lost")]
    Lost,
    #[error(transparent)]
    Store(#[from] SwarmStoreError),
}

impl From<sqlx::Error> for LeaseError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl LeaseError {
    /// Whether the same write may succeed soon: the database is unavailable, and the lease is not known to be lost.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Store(SwarmStoreError::Database(error)) if is_outage(error))
    }
}

/// A transaction under the lease. Dropping it without a commit writes nothing.
///
/// The result of a commit may be unknown. Therefore, each write is idempotent and returns whether it was new; an event
/// is written only with a new one.
pub struct LeasedTransaction<'a> {
    store: &'a SwarmStore,
    run_id: &'a str,
    transaction: Transaction,
    last_event: i64,
    is_cancelled: bool,
    now: Millis,
    user_id: String,
    /// The encrypted bytes that it adds.
    bytes: i64,
}

pub struct NewStep<'a> {
    pub place: StepPosition,
    /// The SHA-256 of the input.
    pub input_hash: [u8; 32],
    /// The external effect of a tool call.
    pub effect: Option<&'a str>,
    /// The key that identifies repeats for the callee.
    pub idempotency_key: &'a str,
    /// The output limit of a model call, in tokens.
    pub output_limit: Option<u32>,
    /// The digest of the called tool.
    pub component_digest: Option<&'a str>,
}

pub struct StepEnd<'a, T> {
    pub place: StepPosition,
    /// The state: `done`, `failed`, `uncertain` or `blocked`.
    pub state: &'a str,
    /// The output, to be encrypted.
    pub output: &'a T,
    /// Its price.
    pub credits: Credits,
    /// Tokens of input.
    pub tokens_in: i64,
    /// Tokens of output.
    pub tokens_out: i64,
}

impl Lease {
    /// Begins a transaction, unless the lease has expired.
    pub async fn begin<'a>(
        &'a self,
        store: &'a SwarmStore,
        now: Millis,
    ) -> Result<LeasedTransaction<'a>, LeaseError> {
        let mut transaction = store.database.begin().await?;
        // The statement is a write, so that PostgreSQL locks the row: a concurrent claim waits, or is visible.
        let run = sqlx::query(
            "UPDATE swarm_runs SET lease_until = lease_until WHERE id = $1 AND fence = $2 AND lease_until > $3 \
             AND ended_at IS NULL RETURNING user_id, last_event, cancel_requested_at",
        )
        .bind(&*self.run_id)
        .bind(self.fence)
        .bind(now.0)
        .fetch_optional(&mut transaction)
        .await?;
        let run = run.ok_or(LeaseError::Lost)?;
        let cancelled_at: Option<i64> = run.try_get("cancel_requested_at")?;
        let begun = LeasedTransaction::of(store, &self.run_id, transaction, &run, now)?;
        Ok(LeasedTransaction {
            is_cancelled: cancelled_at.is_some(),
            ..begun
        })
    }
}

impl<'a> LeasedTransaction<'a> {
    /// Goes on with a transaction that has locked the run, from the run's row.
    pub(super) fn of(
        store: &'a SwarmStore,
        run_id: &'a str,
        transaction: Transaction,
        run: &AnyRow,
        now: Millis,
    ) -> sqlx::Result<Self> {
        Ok(Self {
            store,
            run_id,
            transaction,
            last_event: run.try_get("last_event")?,
            is_cancelled: false,
            now,
            user_id: run.try_get("user_id")?,
            bytes: 0,
        })
    }
}

impl LeasedTransaction<'_> {
    /// Writes an event for clients.
    pub async fn tell(&mut self, name: &str, data: &impl Serialize) -> Result<(), LeaseError> {
        self.last_event += 1;
        let sealed = self.seal(&format!("event {}", self.last_event), data);
        sqlx::query(
            "INSERT INTO swarm_events (run_id, number, name, data) VALUES ($1, $2, $3, $4)",
        )
        .bind(self.run_id)
        .bind(self.last_event)
        .bind(name)
        .bind(sealed)
        .execute(&mut self.transaction)
        .await?;
        sqlx::query("UPDATE swarm_runs SET last_event = $1 WHERE id = $2")
            .bind(self.last_event)
            .bind(self.run_id)
            .execute(&mut self.transaction)
            .await?;
        Ok(())
    }

    /// Whether the user has cancelled the run.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// Lets the run wait without an executor until this time.
    pub async fn leave(&mut self, wait: &RunWait, until: Millis) -> Result<(), LeaseError> {
        let bytes = self.bytes;
        let sealed = self.seal("waiting", wait);
        // It is gone before the run ends.
        self.bytes = bytes;
        sqlx::query(
            "UPDATE swarm_runs SET waiting = $1, lease_owner = NULL, lease_until = $2, fence = fence + 1 WHERE id = $3",
        )
        .bind(sealed)
        .bind(until.0)
        .bind(self.run_id)
        .execute(&mut self.transaction)
        .await?;
        Ok(())
    }

    /// Records the start of an agent. Returns whether that is new.
    pub async fn begin_agent(&mut self, number: i64) -> Result<bool, LeaseError> {
        let begun = sqlx::query(
            "INSERT INTO swarm_agents (run_id, number, started_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        )
        .bind(self.run_id)
        .bind(number)
        .bind(self.now.0)
        .execute(&mut self.transaction)
        .await?;
        Ok(begun.rows_affected() == 1)
    }

    /// Records the intent of a step, or replaces it.
    pub async fn intend(&mut self, step: &NewStep<'_>) -> Result<(), LeaseError> {
        sqlx::query(
            "INSERT INTO swarm_steps (run_id, agent, iteration, ordinal, input_hash, effect, idempotency_key, \
             output_limit, state, credits, tokens_in, tokens_out, component_digest, intended_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'intended', 0, 0, 0, $9, $10) \
             ON CONFLICT (run_id, agent, iteration, ordinal) DO UPDATE SET input_hash = excluded.input_hash, \
             idempotency_key = excluded.idempotency_key, output_limit = excluded.output_limit, \
             intended_at = excluded.intended_at WHERE swarm_steps.state = 'intended'",
        )
        .bind(self.run_id)
        .bind(step.place.agent)
        .bind(step.place.iteration)
        .bind(step.place.ordinal)
        .bind(step.input_hash.to_vec())
        .bind(step.effect)
        .bind(step.idempotency_key)
        .bind(step.output_limit.map(i64::from))
        .bind(step.component_digest)
        .bind(self.now.0)
        .execute(&mut self.transaction)
        .await?;
        Ok(())
    }

    /// Records the result of a step. Its cost counts, and the run has made progress since its claim. Returns whether
    /// that is new.
    pub async fn end_step<T: Serialize>(
        &mut self,
        end: &StepEnd<'_, T>,
    ) -> Result<bool, LeaseError> {
        let sealed = self.seal(&end.place.field(), end.output);
        let bytes = sealed.len() as i64;
        let ended = sqlx::query(
            "UPDATE swarm_steps SET state = $1, output = $2, credits = credits + $3, tokens_in = tokens_in + $4, \
             tokens_out = tokens_out + $5, \
             ended_at = $6 WHERE run_id = $7 AND agent = $8 AND iteration = $9 AND ordinal = $10 \
             AND state = 'intended'",
        )
        .bind(end.state)
        .bind(sealed)
        .bind(end.credits.micro())
        .bind(end.tokens_in)
        .bind(end.tokens_out)
        .bind(self.now.0)
        .bind(self.run_id)
        .bind(end.place.agent)
        .bind(end.place.iteration)
        .bind(end.place.ordinal)
        .execute(&mut self.transaction)
        .await?;
        if ended.rows_affected() == 0 {
            self.bytes -= bytes;
            return Ok(false);
        }
        let price = CallPrice {
            credits: end.credits,
            tokens_in: end.tokens_in,
            tokens_out: end.tokens_out,
        };
        add_price(&mut self.transaction, self.run_id, price).await?;
        let progress = "UPDATE swarm_runs SET recoveries = 0, waiting = NULL WHERE id = $1 \
                        AND (recoveries > 0 OR waiting IS NOT NULL)";
        sqlx::query(progress)
            .bind(self.run_id)
            .execute(&mut self.transaction)
            .await?;
        Ok(true)
    }

    /// Records the end of an agent. Returns whether that is new.
    pub async fn end_agent(
        &mut self,
        number: i64,
        result: &AgentResult,
    ) -> Result<bool, LeaseError> {
        let sealed = self.seal(&format!("agent {number}"), result);
        let bytes = sealed.len() as i64;
        let ended = sqlx::query(
            "UPDATE swarm_agents SET ended_at = $1, result = $2 WHERE run_id = $3 AND number = $4 \
             AND ended_at IS NULL",
        )
        .bind(self.now.0)
        .bind(sealed)
        .bind(self.run_id)
        .bind(number)
        .execute(&mut self.transaction)
        .await?;
        if ended.rows_affected() == 0 {
            self.bytes -= bytes;
            return Ok(false);
        }
        if result.status == AgentStatus::Completed {
            sqlx::query(
                "UPDATE swarm_runs SET agents_completed = agents_completed + 1 WHERE id = $1",
            )
            .bind(self.run_id)
            .execute(&mut self.transaction)
            .await?;
        }
        Ok(true)
    }

    /// Records the end of a run. A task's run keeps only the outline of its request, because the task has the
    /// definition.
    pub async fn end_run(
        &mut self,
        status: SwarmStatus,
        outcome: &SwarmOutcome,
        request: Option<&SwarmRequest>,
    ) -> Result<(), LeaseError> {
        let sealed = self.seal("outcome", outcome);
        if let Some(request) = request.filter(|request| request.from_task) {
            let before: i64 = sqlx::query_scalar(
                "SELECT CAST(LENGTH(request) AS BIGINT) FROM swarm_runs WHERE id = $1",
            )
            .bind(self.run_id)
            .fetch_one(&mut self.transaction)
            .await?;
            let outline = self.seal("request", &request.outline());
            self.bytes -= before;
            sqlx::query("UPDATE swarm_runs SET request = $1 WHERE id = $2")
                .bind(outline)
                .bind(self.run_id)
                .execute(&mut self.transaction)
                .await?;
        }
        sqlx::query(
            "UPDATE swarm_runs SET status = $1, outcome = $2, ended_at = $3, lease_until = 0, waiting = NULL WHERE id = $4",
        )
        .bind(status.name())
        .bind(sealed)
        .bind(self.now.0)
        .bind(self.run_id)
        .execute(&mut self.transaction)
        .await?;
        Ok(())
    }

    fn seal(&mut self, field: &str, value: &impl Serialize) -> Vec<u8> {
        let sealed = self.store.seal(self.run_id, field, value);
        self.bytes += sealed.len() as i64;
        sealed
    }

    pub async fn commit(mut self) -> Result<(), LeaseError> {
        if self.bytes != 0 {
            sqlx::query("UPDATE swarm_runs SET bytes = bytes + $1 WHERE id = $2")
                .bind(self.bytes)
                .bind(self.run_id)
                .execute(&mut self.transaction)
                .await?;
            count_bytes(&mut self.transaction, &self.user_id, self.bytes).await?;
        }
        self.transaction.commit().await?;
        Ok(())
    }
}
