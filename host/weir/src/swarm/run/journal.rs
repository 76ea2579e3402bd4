//! What an executor writes of a run: one transaction an entry, tried again while the database is away and the lease lasts.

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

/// What is written in one transaction. Written twice, it is there once.
pub(super) enum Entry<'a> {
    /// Nothing: it only asks whether the run goes on.
    Look,
    /// The hold that model calls draw on.
    ParentHold(&'a HoldId),
    /// An agent begins.
    BeginAgent {
        /// Its place.
        number: i64,
        /// What clients are told.
        told: &'a Value,
    },
    /// A step is about to be taken, unless the run goes no further.
    Intend(&'a NewStep<'a>),
    /// A step is taken.
    EndStep {
        /// What came of it.
        end: &'a StepEnd<'a, Value>,
        /// What clients are told of a tool's call.
        told: Option<&'a Value>,
    },
    /// An agent has ended.
    EndAgent {
        /// Its place.
        number: i64,
        /// What became of it.
        result: &'a AgentResult,
        /// What clients are told.
        told: &'a Value,
    },
    /// The run is over. If its user has cancelled it before this is written, it is cancelled.
    EndRun {
        /// How it ends unless it is cancelled.
        status: Status,
        /// What came of it.
        outcome: &'a Outcome,
        /// The run as clients are told, but for its status and error.
        record: &'a Record,
        /// What was asked, if that can be read.
        request: Option<&'a SwarmRequest>,
    },
}

impl Running<'_> {
    /// Writes an entry. While the database is away it is tried again, with growing pauses: whoever polls this drops it when
    /// the lease ends.
    pub(super) async fn write(&self, entry: &Entry<'_>) -> Result<(), Break> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_write(entry).await {
                Err(Break::Leave(error)) if error.is_outage() => {
                    tracing::warn!(run = self.run.id, %error, "a swarm's journal is written again soon");
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
                return Err(stopped("It took too long.".to_owned()));
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

    /// Whether this executor has ended the run, although it does not know so: the outcome of its commit was unknown.
    pub(super) async fn has_ended(&self) -> Result<bool, LeaseError> {
        let run = self.shop.store.find(&self.run.id).await?;
        Ok(run.is_some_and(|run| run.status.is_over() && run.fence == self.lease.fence))
    }
}
