//! The journal of a run: one transaction for each entry, retried while the database is unavailable and the lease is
//! valid.

use std::time::Duration;

use serde_json::{Value, json};
use weir_errors::ApiError;
use weir_identity::model_grant::find_grant;
use weir_storage::clock::Millis;

use super::state::{ActiveRun, RunHalt, StepBreak, refused, stopped};
use crate::swarm::record::{AgentResult, RunWait, SwarmOutcome, SwarmRecord, SwarmStatus};
use crate::swarm::request::SwarmRequest;
use crate::swarm::store::{LeaseError, NewStep, StepEnd};

/// The pauses between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The content of one transaction. A repeated write has no further effect.
pub(super) enum JournalEntry<'a> {
    /// No write: checks whether the run continues.
    Look,
    /// The run waits without an executor until this time.
    Leave { wait: &'a RunWait, until: Millis },
    BeginAgent {
        /// The agent's position.
        number: i64,
        /// The clients' event.
        told: &'a Value,
    },
    /// The intent of a step, unless the run ends.
    Intend(&'a NewStep<'a>),
    EndStep {
        end: &'a StepEnd<'a, Value>,
        /// The clients' event for a tool call.
        told: Option<&'a Value>,
    },
    EndAgent {
        /// The agent's position.
        number: i64,
        result: &'a AgentResult,
        /// The clients' event.
        told: &'a Value,
    },
    /// The end of the run. If the user cancelled it before this write, its status is cancelled.
    EndRun {
        /// The status, unless the run was cancelled.
        status: SwarmStatus,
        outcome: &'a SwarmOutcome,
        /// The clients' record, except status and error.
        record: &'a SwarmRecord,
        /// The request, if it is readable.
        request: Option<&'a SwarmRequest>,
    },
}

impl ActiveRun<'_> {
    /// Writes an entry. Retries with growing pauses while the database is unavailable; the caller drops the future when
    /// the lease expires.
    pub(super) async fn write(&self, entry: &JournalEntry<'_>) -> Result<(), StepBreak> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_write(entry).await {
                Err(StepBreak::Leave(error)) if error.is_outage() => {
                    tracing::warn!(run = self.run.id, %error, "cannot write a swarm's journal; retrying");
                }
                written => return written,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_write(&self, entry: &JournalEntry<'_>) -> Result<(), StepBreak> {
        let now = self.parts.ledger.now();
        let is_before_step = matches!(
            entry,
            JournalEntry::Look | JournalEntry::Intend(_) | JournalEntry::Leave { .. }
        );
        if is_before_step {
            let (account, parts) = (&self.run.user_id, &self.run.parts);
            let grant = find_grant(&self.parts.database, account, parts, now).await;
            if let Err(refusal) = grant.map_err(LeaseError::from)? {
                let refusal = ApiError::from(refusal);
                return Err(refused(refusal.code(), refusal.message()));
            }
        }
        let mut write = self.lease.begin(&self.parts.store, now).await?;
        if is_before_step {
            if write.is_cancelled() {
                return Err(StepBreak::Halt(RunHalt::Cancelled));
            }
            if now >= self.run.deadline {
                return Err(stopped("The swarm exceeded its deadline.".to_owned()));
            }
        }
        match *entry {
            JournalEntry::Look => return Ok(()),
            JournalEntry::Leave { wait, until } => {
                let mut told = json!(wait.shown());
                told["execution_id"] = json!(self.run.id);
                write.tell("agent_waiting", &told).await?;
                write.leave(wait, until).await?;
            }
            JournalEntry::Intend(step) => write.intend(step).await?,
            JournalEntry::BeginAgent { number, told } => {
                if write.begin_agent(number).await? {
                    write.tell("agent_start", told).await?;
                }
            }
            JournalEntry::EndStep { end, told } => {
                if write.end_step(end).await?
                    && let Some(told) = told
                {
                    write.tell("tool_call", told).await?;
                }
            }
            JournalEntry::EndAgent {
                number,
                result,
                told,
            } => {
                if write.end_agent(number, result).await? {
                    write.tell("agent_done", told).await?;
                }
            }
            JournalEntry::EndRun {
                status,
                outcome,
                record,
                request,
            } => {
                let is_cancelled = write.is_cancelled();
                let status = if is_cancelled {
                    SwarmStatus::Cancelled
                } else {
                    status
                };
                let error = outcome.error.clone().filter(|_| !is_cancelled);
                let mut told = json!(record);
                told["status"] = json!(status);
                told["error"] = json!(error);
                let outcome = SwarmOutcome {
                    error,
                    ..outcome.clone()
                };
                write.tell("swarm_done", &told).await?;
                write.end_run(status, &outcome, request).await?;
            }
        }
        write.commit().await?;
        self.parts.deltas.tell_written(&self.run.id);
        Ok(())
    }

    /// Whether this executor's end of the run was committed, after the commit's result was unknown.
    pub(super) async fn has_ended(&self) -> Result<bool, LeaseError> {
        let run = self.parts.store.find(&self.run.id).await?;
        Ok(run.is_some_and(|run| run.status.is_over() && run.fence == self.lease.fence))
    }
}
