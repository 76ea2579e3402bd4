//! A run from its claim to its end: agents one after another, each with the previous output.
//!
//! Results of an earlier claim are read, not repeated: finished agents, and finished steps of the current one. A step
//! with an intent but without a result is repeated with the same key.

mod agent;
mod journal;
mod state;
mod tool_step;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;
use weir_ledger::Credits;
use weir_storage::clock::Millis;
use weir_tools::CallRecord;

pub(super) use self::agent::is_incomplete;
use self::agent::{AgentEnd, AgentLoop};
use self::journal::JournalEntry;
pub use self::state::ExecutorParts;
use self::state::{ActiveRun, RunHalt, StepBreak, exhausted, stopped};
use super::order::order;
use super::prompt::{InjectedText, system_prompt};
use super::record::{
    AgentResult, AgentStatus, CONTENT_CHARS, SwarmOutcome, SwarmStatus, cut, seconds_between,
    status_of,
};
use super::record_of;
use super::request::{SwarmAgent, SwarmRequest};
use super::spans::RunTrace;
use super::store::{Lease, LeaseError, RunStep, StepEnd, StepPosition, SwarmStoreError};
use super::unpriced::{self, CallState};

/// The maximum claims of a run without a finished step.
const MAX_RECOVERIES: i64 = 5;

/// The maximum time for which the end of a run waits for the price of its last call, and the interval between looks: the record
/// of a run that is stopped during a call has its price.
const PRICE_WAIT: Duration = Duration::from_millis(1_500);
const PRICE_LOOK: Duration = Duration::from_millis(50);

/// Works on a run until its end. It holds `calling` during a tool call; if it is dropped without that lock, no tool
/// call has an unknown outcome.
///
/// # Errors
///
/// Fails if the lease or the store is lost; the next executor continues from there.
pub async fn work(
    parts: &ExecutorParts,
    lease: &Lease,
    calling: &Mutex<()>,
) -> Result<(), LeaseError> {
    let run = parts.store.find(&lease.run_id).await?;
    // The record counts only for this claim: its hold belongs to it alone.
    let run = run.filter(|run| run.fence == lease.fence);
    let run = run.ok_or(LeaseError::Lost)?;
    let request = parts.store.request(&run.id).await;
    let asked_at = request.as_ref().ok();
    let asked_at = asked_at.and_then(|request| request.trace_parent.as_deref());
    let mut running = ActiveRun {
        trace: RunTrace::new(&parts.tracer, &run.id, asked_at),
        parts,
        lease,
        steps: parts.store.steps(&run.id).await?,
        spent: run.credits,
        run,
        calling,
    };
    let request = match request {
        Ok(request) => request,
        // A retry could not read it, either.
        Err(error @ SwarmStoreError::Unreadable(_)) => {
            tracing::error!(run = running.run.id, %error, "cannot read a swarm");
            let why = "The stored request is unreadable.".to_owned();
            return running.end(None, &[], Some(RunHalt::Stopped(why))).await;
        }
        Err(error) => return Err(error.into()),
    };
    let mut results = Vec::new();
    let halt = match running.go_through(&request, &mut results).await {
        Ok(()) => None,
        Err(StepBreak::Halt(halt)) => Some(halt),
        Err(StepBreak::Leave(error)) => return Err(error),
        Err(StepBreak::Waits) => return Ok(()),
    };
    running.end(Some(&request), &results, halt).await
}

impl ActiveRun<'_> {
    async fn go_through(
        &mut self,
        request: &SwarmRequest,
        results: &mut Vec<AgentResult>,
    ) -> Result<(), StepBreak> {
        if self.run.recoveries > MAX_RECOVERIES {
            return Err(stopped(format!(
                "Given up: executors failed {MAX_RECOVERIES} times without progress."
            )));
        }
        let order = order(&request.agents).map_err(|circle| stopped(circle.to_string()))?;
        let rows = self.parts.store.agents(&self.run.id).await?;
        for (number, &index) in order.iter().enumerate() {
            let row = rows.get(number);
            let result = match row.and_then(|row| row.result.clone()) {
                Some(result) => result,
                None => {
                    let agent = &request.agents[index];
                    let injected = injected(request, agent, number, results);
                    let started_at = row.map(|row| row.started_at);
                    self.agent(agent, number, injected, started_at).await?
                }
            };
            let failure = match result.status {
                AgentStatus::Failed => Some(format!(
                    "The agent {:?} failed: {}",
                    result.name,
                    result.error.as_deref().unwrap_or_default()
                )),
                AgentStatus::Completed | AgentStatus::MaxIterations => None,
            };
            results.push(result);
            if let Some(failure) = failure {
                return Err(stopped(failure));
            }
        }
        Ok(())
    }

    /// Runs an agent, or continues one that has begun.
    async fn agent(
        &mut self,
        agent: &SwarmAgent,
        number: usize,
        injected: InjectedText<'_>,
        started_at: Option<Millis>,
    ) -> Result<AgentResult, StepBreak> {
        let place = number as i64;
        let started_at = match started_at {
            // One of its model calls may be running: nothing is reserved before that call is priced.
            Some(started_at) => started_at,
            None => {
                self.look().await?;
                if self.remaining() <= Credits::ZERO {
                    return Err(exhausted());
                }
                let now = self.parts.ledger.now();
                let told = json!({
                    "execution_id": self.run.id, "agent": agent.name, "number": number,
                    "agents_total": self.run.agents_total, "model": agent.model,
                });
                let told = &told;
                self.write(&JournalEntry::BeginAgent {
                    number: place,
                    told,
                })
                .await?;
                now
            }
        };
        let system = system_prompt(&agent.system_prompt, injected);
        let AgentEnd {
            status,
            output,
            error,
            iterations,
            halt,
        } = AgentLoop::new(self, agent, place, &system).run().await?;
        let own = |step: &&RunStep| step.place.agent == place;
        let own: Vec<_> = self.steps.iter().filter(own).collect();
        let now = self.parts.ledger.now();
        let result = AgentResult {
            name: agent.name.clone(),
            status,
            output,
            credits_used: own.iter().map(|step| step.credits).sum(),
            tokens_in: own.iter().map(|step| step.tokens_in).sum(),
            tokens_out: own.iter().map(|step| step.tokens_out).sum(),
            iterations,
            duration_seconds: seconds_between(started_at, now),
            tool_calls: own.iter().filter_map(|step| call_of(step)).collect(),
            error,
        };
        let mut told = json!(result);
        told["execution_id"] = json!(self.run.id);
        told["agent"] = told["name"].take();
        told["number"] = json!(number);
        told["output"] = json!(cut(&result.output, CONTENT_CHARS));
        if let Some(fields) = told.as_object_mut() {
            fields.remove("name");
        }
        let ended = JournalEntry::EndAgent {
            number: place,
            result: &result,
            told: &told,
        };
        self.write(&ended).await?;
        self.trace
            .end_agent(place, &agent.model, started_at, &result);
        match halt {
            Some(RunHalt::Cancelled) => Err(StepBreak::Halt(RunHalt::Cancelled)),
            _ => Ok(result),
        }
    }

    /// Returns a recorded step.
    pub(super) fn step(&self, place: StepPosition) -> Option<&RunStep> {
        self.steps.iter().find(|step| step.place == place)
    }

    /// Records the result of a step after it is written.
    pub(super) fn ended(&mut self, end: &StepEnd<'_, Value>) {
        self.run.waiting = None;
        self.spent = self.spent.saturating_add(end.credits);
        self.steps.retain(|step| step.place != end.place);
        self.steps.push(RunStep {
            place: end.place,
            idempotency_key: String::new(),
            effect: None,
            output_limit: None,
            output: Some(end.output.clone()),
            credits: end.credits,
            tokens_in: end.tokens_in,
            tokens_out: end.tokens_out,
        });
    }

    /// The rest of the budget.
    pub(super) fn remaining(&self) -> Credits {
        self.run.budget.saturating_sub(self.spent)
    }

    pub(super) fn deadline(&self) -> Instant {
        let left = self.run.deadline.0 - self.parts.ledger.now().0;
        Instant::now() + Duration::from_millis(left.max(0) as u64)
    }

    /// Checks whether the run continues, without a write.
    pub(super) async fn look(&self) -> Result<(), StepBreak> {
        self.write(&JournalEntry::Look).await
    }

    /// Adds the ledger's prices of model calls whose answers are not stored. A call that the end of the run has dropped is
    /// settled within a moment.
    async fn price_calls(&mut self) -> Result<(), StepBreak> {
        let until = Instant::now() + PRICE_WAIT;
        let calls = self.parts.store.unpriced_of(&self.run.id).await;
        for call in calls.map_err(LeaseError::from)? {
            let price = loop {
                let state = unpriced::find(&self.parts.ledger, &call).await;
                match state.map_err(LeaseError::from)? {
                    CallState::Charged(price) => break Some(price),
                    CallState::UnderWay if Instant::now() < until => {
                        tokio::time::sleep(PRICE_LOOK).await;
                    }
                    // A later look-up prices it.
                    CallState::UnderWay | CallState::Unknown => break None,
                }
            };
            let Some(price) = price else { continue };
            let end = StepEnd {
                place: call.place,
                state: "failed",
                output: &Value::Null,
                credits: price.credits,
                tokens_in: price.tokens_in,
                tokens_out: price.tokens_out,
            };
            self.write(&JournalEntry::EndStep {
                end: &end,
                told: None,
            })
            .await?;
        }
        Ok(())
    }

    async fn end(
        &mut self,
        request: Option<&SwarmRequest>,
        results: &[AgentResult],
        halt: Option<RunHalt>,
    ) -> Result<(), LeaseError> {
        match self.price_calls().await {
            Ok(()) => {}
            Err(StepBreak::Leave(LeaseError::Lost)) => return Err(LeaseError::Lost),
            // A later look-up prices them.
            Err(error) => tracing::warn!(run = self.run.id, ?error, "pricing a swarm's calls"),
        }
        let (status, error) = match halt {
            None => (status_of(results, false), None),
            Some(RunHalt::Stopped(why)) => (status_of(results, true), Some(why)),
            Some(RunHalt::Cancelled) => (SwarmStatus::Cancelled, None),
        };
        // Finished work is of use, although the run stopped behind it.
        let finished = results.iter().rfind(|result| result.status.has_finished());
        let content = finished.or(results.last());
        let content = content.map_or("", |result| &result.output);
        let outcome = SwarmOutcome {
            content: cut(content, CONTENT_CHARS).to_owned(),
            error,
        };
        let run = self.parts.store.find(&self.run.id).await?;
        let run = run.ok_or(LeaseError::Lost)?;
        let mut record = record_of(&run);
        record.content.clone_from(&outcome.content);
        record.current = None;
        let ended = JournalEntry::EndRun {
            status,
            outcome: &outcome,
            record: &record,
            request,
        };
        match self.write(&ended).await {
            Ok(()) => {}
            Err(StepBreak::Leave(LeaseError::Lost)) if self.has_ended().await? => {}
            Err(StepBreak::Leave(error)) => return Err(error),
            Err(StepBreak::Halt(_) | StepBreak::Waits) => return Err(LeaseError::Lost),
        }
        let ended = self.parts.store.find(&self.run.id).await?;
        let status = ended.map_or(status, |run| run.status);
        self.parts.metrics.end(status.name());
        self.trace.end_run(&run, status);
        Ok(())
    }
}

/// Returns the text that goes into an agent's prompt.
fn injected<'a>(
    request: &'a SwarmRequest,
    agent: &SwarmAgent,
    number: usize,
    results: &'a [AgentResult],
) -> InjectedText<'a> {
    match (&agent.depends_on, &request.context) {
        (Some(wanted), _) => {
            let finished =
                |result: &&AgentResult| result.name == *wanted && result.status.has_finished();
            let output = results.iter().find(finished);
            InjectedText::Output(output.map_or("", |result| &result.output))
        }
        (None, Some(context)) if number == 0 => InjectedText::Context(context),
        (None, _) => InjectedText::Nothing,
    }
}

/// Returns the record of a tool call's step.
fn call_of(step: &RunStep) -> Option<CallRecord> {
    let output = step.output.as_ref().filter(|_| step.place.ordinal > 0)?;
    serde_json::from_value(output["record"].clone()).ok()
}
