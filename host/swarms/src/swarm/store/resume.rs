//! The return of a run that stopped to the queue.

use weir_ledger::Credits;
use weir_storage::clock::Millis;

use super::{
    MAX_OPEN, StepPosition, SwarmRun, SwarmStore, SwarmStoreError, count_bytes, open_runs,
};

/// How a run goes on.
pub struct Resumption {
    /// The maximum cost, including the cost so far.
    pub budget: Credits,
    pub deadline: Millis,
    /// An answered model call that is made again, because its answer is incomplete.
    pub again: Option<StepPosition>,
}

/// The result of a request to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeResult {
    Queued,
    /// Something has changed the run meanwhile.
    Changed,
    /// The user has [`MAX_OPEN`] unfinished runs.
    TooMany,
}

/// The position of no step.
const NOWHERE: StepPosition = StepPosition {
    agent: -1,
    iteration: -1,
    ordinal: 0,
};

/// The model calls that are made again; parameters: the run, and the position of the call with an incomplete answer.
const AGAIN: &str =
    "run_id = $1 AND ordinal = 0 AND (state = 'failed' OR agent = $2 AND iteration = $3)";

impl SwarmStore {
    /// Queues a run that stopped, from the agent at which it stopped. Its calls without a usable answer get new keys; what they have
    /// cost still counts.
    pub async fn resume(
        &self,
        run: &SwarmRun,
        resumption: &Resumption,
    ) -> Result<ResumeResult, SwarmStoreError> {
        let agents = self.agents(&run.id).await?;
        let stopped = agents.iter().rfind(|agent| {
            let result = agent.result.as_ref();
            result.is_some_and(|result| !result.status.has_finished())
        });
        let stopped = stopped.map_or(NOWHERE.agent, |agent| agent.number);
        let again = resumption.again.unwrap_or(NOWHERE);
        let mut transaction = self.database.begin().await?;
        if open_runs(&mut transaction, &run.user_id).await? >= MAX_OPEN {
            return Ok(ResumeResult::TooMany);
        }
        let queued = sqlx::query(
            "UPDATE swarm_runs SET status = 'queued', ended_at = NULL, cancel_requested_at = NULL, recoveries = 0, \
             lease_owner = NULL, lease_until = 0, fence = fence + 1, budget = $1, deadline = $2 \
             WHERE id = $3 AND fence = $4 AND ended_at IS NOT NULL",
        )
        .bind(resumption.budget.micro())
        .bind(resumption.deadline.0)
        .bind(&*run.id)
        .bind(run.fence)
        .execute(&mut transaction)
        .await?;
        if queued.rows_affected() == 0 {
            return Ok(ResumeResult::Changed);
        }
        let freed: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
            "SELECT CAST((SELECT COALESCE(SUM(LENGTH(output)), 0) FROM swarm_steps WHERE {AGAIN}) \
             + (SELECT COALESCE(SUM(LENGTH(result)), 0) FROM swarm_agents WHERE run_id = $1 AND number = $4) \
             + (SELECT COALESCE(LENGTH(outcome), 0) FROM swarm_runs WHERE id = $1) AS BIGINT)"
        )))
        .bind(&*run.id)
        .bind(again.agent)
        .bind(again.iteration)
        .bind(stopped)
        .fetch_one(&mut transaction)
        .await?;
        sqlx::query("UPDATE swarm_runs SET outcome = NULL, bytes = bytes - $1 WHERE id = $2")
            .bind(freed)
            .bind(&*run.id)
            .execute(&mut transaction)
            .await?;
        count_bytes(&mut transaction, &run.user_id, -freed).await?;
        sqlx::query(
            "UPDATE swarm_agents SET ended_at = NULL, result = NULL WHERE run_id = $1 AND number = $2",
        )
        .bind(&*run.id)
        .bind(stopped)
        .execute(&mut transaction)
        .await?;
        // Keys are unique, because each run at this point has another fence.
        sqlx::query(sqlx::AssertSqlSafe(format!(
            "UPDATE swarm_steps SET state = 'intended', output = NULL, output_limit = NULL, ended_at = NULL, \
             idempotency_key = idempotency_key || $4 WHERE {AGAIN}"
        )))
        .bind(&*run.id)
        .bind(again.agent)
        .bind(again.iteration)
        .bind(format!(":{}", run.fence))
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(ResumeResult::Queued)
    }
}
