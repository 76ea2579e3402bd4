//! The journal of a run: one transaction for each entry, retried while the database is unavailable and the lease is
//! valid.

use std::time::Duration;

use serde_json::{Value, json};
use weir_ledger::HoldId;

use super::{Break, Halt, Running, stopped};
use crate::identity::limits::KEY_ENDED;
use crate::identity::store::models_of_working_key;
use crate::swarm::record::{AgentResult, Outcome, Record, Status};
use crate::swarm::request::SwarmRequest;
use crate::swarm::store::{LeaseError, NewStep, StepEnd};

/// The pauses between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The content of one transaction. A repeated write has no further effect.
pub(super) enum Entry<'a> {
    /// No write: checks whether the run continues.
    Look,
    /// The hold of model calls.
    ParentHold(&'a HoldId),
    /// The start of an agent.
    BeginAgent {
        /// The agent's position.
        number: i64,
        /// The clients' event.
        told: &'a Value,
    },
    /// The intent of a step, unless the run ends.
    Intend(&'a NewStep<'a>),
    /// The end of a step.
    EndStep {
        /// The result of the step.
        end: &'a StepEnd<'a, Value>,
        /// The clients' event for a tool call.
        told: Option<&'a Value>,
    },
    /// The end of an agent.
    EndAgent {
        /// The agent's position.
        number: i64,
        /// The agent's result.
        result: &'a AgentResult,
        /// The clients' event.
        told: &'a Value,
    },
    /// The end of the run. If the user cancelled it before this write, its status is cancelled.
    EndRun {
        /// The status, unless the run was cancelled.
        status: Status,
        /// The outcome.
        outcome: &'a Outcome,
        /// The clients' record, except status and error.
        record: &'a Record,
        /// The request, if it is readable.
        request: Option<&'a SwarmRequest>,
    },
}

impl Running<'_> {
    /// Writes an entry. Retries with growing pauses while the database is unavailable; the caller drops the future when
    /// the lease expires.
    pub(super) async fn write(&self, entry: &Entry<'_>) -> Result<(), Break> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_write(entry).await {
                Err(Break::Leave(error)) if error.is_outage() => {
                    tracing::warn!(run = self.run.id, %error, "cannot write a swarm's journal; retrying");
                }
                written => return written,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_write(&self, entry: &Entry<'_>) -> Result<(), Break> {
        let now = self.shop.ledger.now();
        let is_before_step = matches!(entry, Entry::Look | Entry::Intend(_));
        if is_before_step && let Some(key_id) = &self.run.key_id {
            let models = models_of_working_key(&self.shop.database, key_id, now).await;
            if models.map_err(LeaseError::from)?.is_none() {
                return Err(stopped(format!("KEY_ENDED: {KEY_ENDED}")));
            }
        }
        let mut write = self.lease.begin(&self.shop.store, now).await?;
        if is_before_step {
            if write.is_cancelled() {
                return Err(Break::Halt(Halt::Cancelled));
            }
            if now >= self.run.deadline {
                return Err(stopped("The swarm exceeded its deadline.".to_owned()));
            }
        }
        match *entry {
            Entry::Look => return Ok(()),
            Entry::ParentHold(hold) => write.set_parent_hold(hold).await?,
            Entry::Intend(step) => write.intend(step).await?,
            Entry::BeginAgent { number, told } => {
                if write.begin_agent(number).await? {
                    write.tell("agent_start", told).await?;
                }
            }
            Entry::EndStep { end, told } => {
                if write.end_step(end).await?
                    && let Some(told) = told
                {
                    write.tell("tool_call", told).await?;
                }
            }
            Entry::EndAgent {
                number,
                result,
                told,
            } => {
                if write.end_agent(number, result).await? {
                    write.tell("agent_done", told).await?;
                }
            }
            Entry::EndRun {
                status,
                outcome,
                record,
                request,
            } => {
                let is_cancelled = write.is_cancelled();
                let status = if is_cancelled {
                    Status::Cancelled
                } else {
                    status
                };
                let error = outcome.error.clone().filter(|_| !is_cancelled);
                let mut told = json!(record);
                told["status"] = json!(status);
                told["error"] = json!(error);
                let outcome = Outcome {
                    error,
                    ..outcome.clone()
                };
                write.tell("swarm_done", &told).await?;
                write.end_run(status, &outcome, request).await?;
            }
        }
        write.commit().await?;
        self.shop.deltas.tell_written(&self.run.id);
        Ok(())
    }

    /// Whether this executor's end of the run was committed, after the commit's result was unknown.
    pub(super) async fn has_ended(&self) -> Result<bool, LeaseError> {
        let run = self.shop.store.find(&self.run.id).await?;
        Ok(run.is_some_and(|run| run.status.is_over() && run.fence == self.lease.fence))
    }
}
