//! What only whoever has the lease of a run may write.

use serde::Serialize;
use sqlx::Row;
use weir_ledger::{Credits, HoldId, LedgerError};
use weir_storage::clock::Millis;
use weir_storage::database::{Transaction, is_outage};

use super::{CallPrice, Place, StoreError, SwarmStore, add_price, count_bytes};
use crate::swarm::record::{AgentResult, AgentStatus, Outcome, Status};
use crate::swarm::request::SwarmRequest;

/// The right to work on a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The run.
    pub run_id: String,
    /// The number of the claim.
    pub fence: i64,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Somebody else has the run by now, or may have.
    #[error("the lease is lost")]
    Lost,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ledger: nothing could be held.
    #[error(transparent)]
    Ledger(LedgerError),
}

impl From<sqlx::Error> for LeaseError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl LeaseError {
    /// Whether the same write may succeed soon: the database is away, and the lease is not known to be lost.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Store(StoreError::Database(error)) if is_outage(error))
    }
}

/// A transaction of whoever has the lease. Dropped without a commit, it writes nothing.
///
/// The outcome of a commit may be unknown. So each write changes nothing if it is made again, and says whether it was new:
/// an event is told with a new one only.
pub struct Leased<'a> {
    store: &'a SwarmStore,
    run_id: &'a str,
    transaction: Transaction,
    last_event: i64,
    is_cancelled: bool,
    now: Millis,
    user_id: String,
    /// Sealed bytes that it adds.
    bytes: i64,
}

/// A step that is about to be taken.
pub struct NewStep<'a> {
    /// Which.
    pub place: Place,
    /// SHA-256 of what goes in.
    pub input_hash: [u8; 32],
    /// What a tool's call does outside.
    pub effect: Option<&'a str>,
    /// What tells a repeat to whoever is asked.
    pub idempotency_key: &'a str,
    /// Tokens, of a model's call.
    pub output_limit: Option<u32>,
    /// Of the tool that is called.
    pub component_digest: Option<&'a str>,
}

/// What came of a step.
pub struct StepEnd<'a, T> {
    /// Which.
    pub place: Place,
    /// `done`, `failed`, `uncertain` or `blocked`.
    pub state: &'a str,
    /// To be sealed.
    pub output: &'a T,
    /// Its price.
    pub credits: Credits,
    /// Tokens of input.
    pub tokens_in: i64,
    /// Tokens of output.
    pub tokens_out: i64,
}

impl Lease {
    /// Begins to write, unless the lease is over.
    pub async fn begin<'a>(
        &'a self,
        store: &'a SwarmStore,
        now: Millis,
    ) -> Result<Leased<'a>, LeaseError> {
        let mut transaction = store.database.begin().await?;
        // A write, so that PostgreSQL locks the row: a claim waits, or is seen.
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
        Ok(Leased {
            store,
            run_id: &self.run_id,
            transaction,
            last_event: run.try_get("last_event")?,
            is_cancelled: cancelled_at.is_some(),
            now,
            user_id: run.try_get("user_id")?,
            bytes: 0,
        })
    }
}

impl Leased<'_> {
    /// Tells clients something.
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

    /// Whether the run's user wants it to end.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// Names the hold that model calls draw on.
    pub async fn set_parent_hold(&mut self, hold: &HoldId) -> Result<(), LeaseError> {
        sqlx::query("UPDATE swarm_runs SET parent_hold = $1 WHERE id = $2")
            .bind(&*hold.0)
            .bind(self.run_id)
            .execute(&mut self.transaction)
            .await?;
        Ok(())
    }

    /// An agent begins. Returns whether that is new.
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

    /// A step is about to be taken; or once more, another way.
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

    /// A step is taken. Its cost counts, and the run has got further since it was claimed. Returns whether that is new.
    pub async fn end_step<T: Serialize>(
        &mut self,
        end: &StepEnd<'_, T>,
    ) -> Result<bool, LeaseError> {
        let sealed = self.seal(&end.place.field(), end.output);
        let bytes = sealed.len() as i64;
        let ended = sqlx::query(
            "UPDATE swarm_steps SET state = $1, output = $2, credits = $3, tokens_in = $4, tokens_out = $5, \
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
        sqlx::query("UPDATE swarm_runs SET recoveries = 0 WHERE id = $1 AND recoveries > 0")
            .bind(self.run_id)
            .execute(&mut self.transaction)
            .await?;
        Ok(true)
    }

    /// An agent has ended. Returns whether that is new.
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

    /// The run is over. A run of a task keeps the outline of its request alone: the task has the definition.
    pub async fn end_run(
        &mut self,
        status: Status,
        outcome: &Outcome,
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
            "UPDATE swarm_runs SET status = $1, outcome = $2, ended_at = $3, lease_until = 0 WHERE id = $4",
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

    /// Makes all of it last.
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
