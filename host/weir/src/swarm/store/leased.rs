//! What only whoever has the lease of a run may write.

use serde::Serialize;
use sqlx::Row;
use weir_ledger::{Credits, HoldId, LedgerError};
use weir_storage::clock::Millis;
use weir_storage::database::Transaction;

use super::{Place, StoreError, SwarmStore};
use crate::swarm::record::{AgentResult, AgentStatus, Outcome, Status};

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

/// A transaction of whoever has the lease. Dropped without a commit, it writes nothing.
pub struct Leased<'a> {
    store: &'a SwarmStore,
    run_id: &'a str,
    transaction: Transaction,
    last_event: i64,
    is_cancelled: bool,
    now: Millis,
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
             AND ended_at IS NULL RETURNING last_event, cancel_requested_at",
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
        })
    }
}

impl Leased<'_> {
    /// Tells clients something.
    pub async fn tell(&mut self, name: &str, data: &impl Serialize) -> Result<(), LeaseError> {
        self.last_event += 1;
        let field = format!("event {}", self.last_event);
        sqlx::query(
            "INSERT INTO swarm_events (run_id, number, name, data) VALUES ($1, $2, $3, $4)",
        )
        .bind(self.run_id)
        .bind(self.last_event)
        .bind(name)
        .bind(self.store.seal(self.run_id, &field, data))
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

    /// An agent begins.
    pub async fn begin_agent(&mut self, number: i64) -> Result<(), LeaseError> {
        sqlx::query("INSERT INTO swarm_agents (run_id, number, started_at) VALUES ($1, $2, $3)")
            .bind(self.run_id)
            .bind(number)
            .bind(self.now.0)
            .execute(&mut self.transaction)
            .await?;
        Ok(())
    }

    /// A step is about to be taken; or once more, another way.
    pub async fn intend(&mut self, step: &NewStep<'_>) -> Result<(), LeaseError> {
        sqlx::query(
            "INSERT INTO swarm_steps (run_id, agent, iteration, ordinal, input_hash, effect, idempotency_key, \
             output_limit, state, credits, tokens_in, tokens_out, component_digest, intended_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'intended', 0, 0, 0, $9, $10) \
             ON CONFLICT (run_id, agent, iteration, ordinal) DO UPDATE SET input_hash = excluded.input_hash, \
             idempotency_key = excluded.idempotency_key, output_limit = excluded.output_limit, \
             intended_at = excluded.intended_at",
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

    /// A step is taken. What it has cost counts, and whoever took the run up did not do so in vain.
    pub async fn end_step<T: Serialize>(&mut self, end: &StepEnd<'_, T>) -> Result<(), LeaseError> {
        let sealed = self.store.seal(self.run_id, &end.place.field(), end.output);
        sqlx::query(
            "UPDATE swarm_steps SET state = $1, output = $2, credits = $3, tokens_in = $4, tokens_out = $5, \
             ended_at = $6 WHERE run_id = $7 AND agent = $8 AND iteration = $9 AND ordinal = $10",
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
        sqlx::query(
            "UPDATE swarm_runs SET recoveries = 0, credits = credits + $1, tokens_in = tokens_in + $2, \
             tokens_out = tokens_out + $3 WHERE id = $4",
        )
        .bind(end.credits.micro())
        .bind(end.tokens_in)
        .bind(end.tokens_out)
        .bind(self.run_id)
        .execute(&mut self.transaction)
        .await?;
        Ok(())
    }

    /// An agent has ended.
    pub async fn end_agent(&mut self, number: i64, result: &AgentResult) -> Result<(), LeaseError> {
        let sealed = self
            .store
            .seal(self.run_id, &format!("agent {number}"), result);
        sqlx::query(
            "UPDATE swarm_agents SET ended_at = $1, result = $2 WHERE run_id = $3 AND number = $4",
        )
        .bind(self.now.0)
        .bind(sealed)
        .bind(self.run_id)
        .bind(number)
        .execute(&mut self.transaction)
        .await?;
        if result.status == AgentStatus::Completed {
            sqlx::query(
                "UPDATE swarm_runs SET agents_completed = agents_completed + 1 WHERE id = $1",
            )
            .bind(self.run_id)
            .execute(&mut self.transaction)
            .await?;
        }
        Ok(())
    }

    /// The run is over.
    pub async fn end_run(&mut self, status: Status, outcome: &Outcome) -> Result<(), LeaseError> {
        let sealed = self.store.seal(self.run_id, "outcome", outcome);
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

    /// Makes all of it last.
    pub async fn commit(self) -> Result<(), LeaseError> {
        self.transaction.commit().await?;
        Ok(())
    }
}
