//! A run from its claim to its end: agents one after another, each with what went before.
//!
//! Whatever was done under an earlier claim is read, not done again: agents that have ended, and steps of the one that has
//! not. What was intended and has no result is asked for again under the same key.

mod agent;
mod tool_step;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use weir_ledger::{
    AccountId, Credits, HoldId, KeptOpen, Ledger, LedgerError, Open, Refusal, RequestSource,
};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::ids;

use self::agent::{AgentEnd, AgentLoop};
use super::model::ModelApi;
use super::order::order;
use super::prompt::{Injected, system_prompt};
use super::record::{
    AgentResult, AgentStatus, CONTENT_CHARS, Outcome, Status, cut, seconds_between, status_of,
};
use super::request::{Agent, SwarmRequest};
use super::spans::RunTrace;
use super::store::{Lease, LeaseError, Leased, Place, Run, Step, StepEnd, StoreError, SwarmStore};
use super::{Changes, record_of};
use crate::catalog::live::LiveCatalog;
use crate::identity::limits::KEY_ENDED;
use crate::identity::store::models_of_working_key;
use crate::metrics::Metrics;
use crate::tasks::credentials::TaskCredentials;
use crate::telemetry::spans::Tracer;
use crate::tools::{CallRecord, Tools};

/// How often a run is taken up without a step of it being done.
const MAX_RECOVERIES: i64 = 5;

/// How long the ledger may take.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(10);

/// What the holds of swarms name as their model.
const HOLD_MODEL: &str = "swarm";

/// What an executor works with. Cheap to clone.
#[derive(Clone)]
pub struct Workshop {
    /// Where swarms are kept.
    pub store: SwarmStore,
    /// Where their keys are looked up.
    pub database: Database,
    /// The accounts, and the time.
    pub ledger: Ledger,
    /// The models and their prices.
    pub catalog: Arc<LiveCatalog>,
    /// Who asks models.
    pub api: ModelApi,
    /// What agents may call.
    pub tools: Tools,
    /// What they may prove themselves with, where a task has it.
    pub credentials: TaskCredentials,
    /// Who waits for something to be told.
    pub changes: Changes,
    /// Figures for Prometheus.
    pub metrics: Arc<Metrics>,
    /// Who records what is done.
    pub tracer: Tracer,
}

/// A run and what is known of it.
pub struct Running<'a> {
    /// What it works with.
    pub shop: &'a Workshop,
    /// The right to do so.
    pub lease: &'a Lease,
    /// The run as it was when it was taken up.
    pub run: Run,
    /// The steps that were noted before.
    pub steps: Vec<Step>,
    /// What it has cost so far.
    pub spent: Credits,
    /// Where it is recorded.
    pub trace: RunTrace,
    hold: Option<ParentHold>,
}

/// What a run has reserved. Dropped, it is free again, whoever has the run then: they have a hold of their own.
struct ParentHold {
    ledger: Ledger,
    account: AccountId,
    /// Until it is released.
    id: Option<HoldId>,
    _kept: KeptOpen,
}

impl Drop for ParentHold {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.ledger.release_soon(&self.account, id);
        }
    }
}

/// Why a run goes no further.
#[derive(Debug)]
pub enum Halt {
    /// It ends, and its user is told why.
    Stopped(String),
    /// Its user has cancelled it.
    Cancelled,
}

/// What may come of any step.
#[derive(Debug)]
pub enum Break {
    /// The run goes no further.
    Halt(Halt),
    /// Whoever has the lease goes on with it, later.
    Leave(LeaseError),
}

impl From<LeaseError> for Break {
    fn from(error: LeaseError) -> Self {
        Self::Leave(error)
    }
}

impl From<StoreError> for Break {
    fn from(error: StoreError) -> Self {
        Self::Leave(error.into())
    }
}

/// Works on a run until it is over.
///
/// # Errors
///
/// Where the lease or the store is lost: whoever takes the run up next goes on where this has stopped.
pub async fn work(shop: &Workshop, lease: &Lease) -> Result<(), LeaseError> {
    let run = shop.store.find(&lease.run_id).await?;
    // What is known of it is that of this claim: its hold is nobody else's by now.
    let run = run.filter(|run| run.fence == lease.fence);
    let run = run.ok_or(LeaseError::Lost)?;
    let request = shop.store.request(&run.id).await;
    let asked_at = request.as_ref().ok();
    let asked_at = asked_at.and_then(|request| request.trace_parent.as_deref());
    let mut running = Running {
        trace: RunTrace::new(&shop.tracer, &run.id, asked_at),
        shop,
        lease,
        steps: shop.store.steps(&run.id).await?,
        spent: run.credits,
        run,
        hold: None,
    };
    let request = match request {
        Ok(request) => request,
        // It will not be read next time either.
        Err(error @ StoreError::Unreadable(_)) => {
            tracing::error!(run = running.run.id, %error, "a swarm cannot be read");
            let why = "What was asked for cannot be read any more.".to_owned();
            return running.end(&[], Some(Halt::Stopped(why))).await;
        }
        Err(error) => return Err(error.into()),
    };
    let mut results = Vec::new();
    let halt = match running.go_through(&request, &mut results).await {
        Ok(()) => None,
        Err(Break::Halt(halt)) => Some(halt),
        Err(Break::Leave(error)) => return Err(error),
    };
    running.end(&results, halt).await
}

impl<'a> Running<'a> {
    async fn go_through(
        &mut self,
        request: &SwarmRequest,
        results: &mut Vec<AgentResult>,
    ) -> Result<(), Break> {
        if self.run.recoveries > MAX_RECOVERIES {
            return Err(stopped(format!(
                "Given up: it was taken up {MAX_RECOVERIES} times after a failure of its executor, and got no further."
            )));
        }
        let order = order(&request.agents).map_err(|circle| stopped(circle.to_string()))?;
        let rows = self.shop.store.agents(&self.run.id).await?;
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

    /// Runs an agent, or goes on with one that has begun.
    async fn agent(
        &mut self,
        agent: &Agent,
        number: usize,
        injected: Injected<'_>,
        started_at: Option<Millis>,
    ) -> Result<AgentResult, Break> {
        self.look().await?;
        if self.remaining() <= Credits::ZERO {
            return Err(exhausted());
        }
        self.ensure_hold().await?;
        let place = number as i64;
        let started_at = match started_at {
            Some(started_at) => started_at,
            None => {
                let now = self.shop.ledger.now();
                let mut write = self.lease.begin(&self.shop.store, now).await?;
                write.begin_agent(place).await?;
                let start = json!({
                    "execution_id": self.run.id, "agent": agent.name, "number": number,
                    "agents_total": self.run.agents_total, "model": agent.model,
                });
                write.tell("agent_start", &start).await?;
                write.commit().await?;
                self.shop.changes.tell();
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
        let own = |step: &&Step| step.place.agent == place;
        let own: Vec<_> = self.steps.iter().filter(own).collect();
        let now = self.shop.ledger.now();
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
        let mut write = self.lease.begin(&self.shop.store, now).await?;
        write.end_agent(place, &result).await?;
        let mut told = json!(result);
        told["execution_id"] = json!(self.run.id);
        told["agent"] = told["name"].take();
        told["number"] = json!(number);
        told["output"] = json!(cut(&result.output, CONTENT_CHARS));
        if let Some(fields) = told.as_object_mut() {
            fields.remove("name");
        }
        write.tell("agent_done", &told).await?;
        write.commit().await?;
        self.trace
            .end_agent(place, &agent.model, started_at, &result);
        self.shop.changes.tell();
        match halt {
            Some(Halt::Cancelled) => Err(Break::Halt(Halt::Cancelled)),
            _ => Ok(result),
        }
    }

    /// A step that was noted.
    pub fn step(&self, place: Place) -> Option<&Step> {
        self.steps.iter().find(|step| step.place == place)
    }

    /// Notes what came of a step, which is written already.
    pub fn ended(&mut self, end: &StepEnd<'_, Value>) {
        self.spent = self.spent.saturating_add(end.credits);
        self.steps.retain(|step| step.place != end.place);
        self.steps.push(Step {
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

    /// What may still be spent.
    pub fn remaining(&self) -> Credits {
        self.run.budget.saturating_sub(self.spent)
    }

    /// When the run must be over.
    pub fn deadline(&self) -> Instant {
        let left = self.run.deadline.0 - self.shop.ledger.now().0;
        Instant::now() + Duration::from_millis(left.max(0) as u64)
    }

    /// Begins to note a step that is about to be taken, unless the run goes no further.
    pub async fn begin_step(&self) -> Result<Leased<'a>, Break> {
        let now = self.shop.ledger.now();
        if let Some(key_id) = &self.run.key_id {
            let models = models_of_working_key(&self.shop.database, key_id, now).await;
            if models.map_err(LeaseError::from)?.is_none() {
                return Err(stopped(format!("KEY_ENDED: {KEY_ENDED}")));
            }
        }
        let write = self.lease.begin(&self.shop.store, now).await?;
        if write.is_cancelled() {
            return Err(Break::Halt(Halt::Cancelled));
        }
        if now >= self.run.deadline {
            return Err(stopped("It took too long.".to_owned()));
        }
        Ok(write)
    }

    /// Whether the run goes on, where nothing is to be noted.
    pub async fn look(&self) -> Result<(), Break> {
        self.begin_step().await.map(drop)
    }

    /// Reserves what may still be spent, for model calls to draw on; as much of it as is there.
    pub async fn ensure_hold(&mut self) -> Result<(), Break> {
        if self.hold.is_some() {
            return Ok(());
        }
        let account = AccountId(self.run.user_id.clone());
        let ledger = &self.shop.ledger;
        // What the claim before has reserved is for this run, and may be all that its user has.
        if let Some(before) = self.run.parent_hold.take() {
            self.release(before).await.map_err(LeaseError::Ledger)?;
        }
        let wanted = self.remaining();
        let mut amount = wanted;
        // What is available may change between two tries.
        for _ in 0..4 {
            let id = HoldId(ids::hold_id());
            let kept = ledger.keep_open(&id);
            let open = Open {
                hold: id.clone(),
                amount,
                request_id: self.run.id.clone(),
                parent: None,
                source: RequestSource::Agent,
                source_id: Some(self.run.task_id.clone().unwrap_or(self.run.id.clone())),
                key_id: self.run.key_id.clone(),
                model: HOLD_MODEL.to_owned(),
            };
            match ledger
                .open(&account, open, Instant::now() + LEDGER_TIMEOUT)
                .await
            {
                Ok(()) => {
                    self.hold = Some(ParentHold {
                        ledger: ledger.clone(),
                        account: account.clone(),
                        id: Some(id.clone()),
                        _kept: kept,
                    });
                    let mut write = self.lease.begin(&self.shop.store, ledger.now()).await?;
                    write.set_parent_hold(&id).await?;
                    write.commit().await?;
                    return Ok(());
                }
                Err(LedgerError::Refused(Refusal::Insufficient { available, .. })) => {
                    amount = available.min(wanted);
                    if amount <= Credits::ZERO {
                        break;
                    }
                }
                Err(LedgerError::Refused(Refusal::OverBudget(exceeded))) => {
                    amount = exceeded.standing.left.min(wanted);
                    if amount <= Credits::ZERO {
                        let why = "BUDGET_EXCEEDED: nothing is left of a budget.";
                        return Err(stopped(why.to_owned()));
                    }
                }
                Err(error) => return Err(LeaseError::Ledger(error).into()),
            }
        }
        Err(stopped(
            "INSUFFICIENT_CREDITS: no credits are left.".to_owned(),
        ))
    }

    /// The hold has ended without this executor: it was away for too long.
    pub async fn replace_hold(&mut self) -> Result<(), Break> {
        self.hold = None;
        self.ensure_hold().await
    }

    /// Frees what was reserved and not spent, also by the claim before, before anybody is told that the run is over.
    async fn release_hold(&mut self) {
        let own = self.hold.take().and_then(|mut hold| hold.id.take());
        for hold in [self.run.parent_hold.take(), own].into_iter().flatten() {
            if let Err(error) = self.release(hold).await {
                tracing::warn!(run = self.run.id, %error, "releasing a swarm's hold");
            }
        }
    }

    async fn release(&self, hold: HoldId) -> Result<(), LedgerError> {
        let account = AccountId(self.run.user_id.clone());
        let deadline = Instant::now() + LEDGER_TIMEOUT;
        match self
            .shop
            .ledger
            .release(&account, hold, None, deadline)
            .await
        {
            Err(LedgerError::Refused(Refusal::Ended(_) | Refusal::UnknownHold)) => Ok(()),
            released => released,
        }
    }

    async fn end(&mut self, results: &[AgentResult], halt: Option<Halt>) -> Result<(), LeaseError> {
        self.release_hold().await;
        let (status, error) = match halt {
            None => (status_of(results, false), None),
            Some(Halt::Stopped(why)) => (status_of(results, true), Some(why)),
            Some(Halt::Cancelled) => (Status::Cancelled, None),
        };
        let content = results.last().map_or("", |result| &result.output);
        let outcome = Outcome {
            content: cut(content, CONTENT_CHARS).to_owned(),
            error,
        };
        let run = self.shop.store.find(&self.run.id).await?;
        let run = run.ok_or(LeaseError::Lost)?;
        let mut record = record_of(&run);
        record.status = status;
        record.content.clone_from(&outcome.content);
        record.error.clone_from(&outcome.error);
        let now = self.shop.ledger.now();
        let mut write = self.lease.begin(&self.shop.store, now).await?;
        write.tell("swarm_done", &record).await?;
        write.end_run(status, &outcome).await?;
        write.commit().await?;
        self.shop.metrics.swarm_end(status.name());
        self.trace.end_run(&run, status);
        self.shop.changes.tell();
        Ok(())
    }
}

/// What an agent is told of what went before.
fn injected<'a>(
    request: &'a SwarmRequest,
    agent: &Agent,
    number: usize,
    results: &'a [AgentResult],
) -> Injected<'a> {
    match (&agent.depends_on, &request.context) {
        (Some(wanted), _) => {
            let finished =
                |result: &&AgentResult| result.name == *wanted && result.status.has_finished();
            let output = results.iter().find(finished);
            Injected::Output(output.map_or("", |result| &result.output))
        }
        (None, Some(context)) if number == 0 => Injected::Context(context),
        (None, _) => Injected::Nothing,
    }
}

/// The log's line of a step, where it is a tool's.
fn call_of(step: &Step) -> Option<CallRecord> {
    let output = step.output.as_ref().filter(|_| step.place.ordinal > 0)?;
    serde_json::from_value(output["record"].clone()).ok()
}

/// The run ends for this reason.
pub fn stopped(why: String) -> Break {
    Break::Halt(Halt::Stopped(why))
}

/// The run ends since nothing is left to be spent.
pub fn exhausted() -> Break {
    stopped(EXHAUSTED.to_owned())
}

/// What users are told of it.
pub const EXHAUSTED: &str = "The budget is exhausted.";

/// The value of a text field of a model's message.
pub fn text_of(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}
