//! A run from its claim to its end: agents one after another, each with what went before.
//!
//! Whatever was done under an earlier claim is read, not done again: agents that have ended, and steps of the one that has
//! not. What was intended and has no result is asked for again under the same key.

mod agent;
mod journal;
mod tool_step;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;
use weir_ledger::{
    AccountId, Credits, HoldId, KeptOpen, Ledger, LedgerError, Open, Refusal, RequestSource,
};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::ids;
use weir_telemetry::spans::Tracer;

use self::agent::{AgentEnd, AgentLoop};
use self::journal::Entry;
use super::model::ModelApi;
use super::order::order;
use super::prompt::{Injected, system_prompt};
use super::record::{
    AgentResult, AgentStatus, CONTENT_CHARS, Outcome, Status, cut, seconds_between, status_of,
};
use super::record_of;
use super::request::{Agent, SwarmRequest};
use super::spans::RunTrace;
use super::store::{Lease, LeaseError, Place, Run, Step, StepEnd, StoreError, SwarmStore};
use super::unpriced::{self, CallState};
use crate::catalog::live::LiveCatalog;
use crate::inference::deltas::Deltas;
use crate::metrics::Metrics;
use crate::tools::task_credentials::TaskCredentials;
use crate::tools::{CallRecord, Tools};

/// How often a run is taken up without a step of it being done.
const MAX_RECOVERIES: i64 = 5;

/// How long the ledger may take.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before the ledger is asked again.
const LEDGER_PAUSE: Duration = Duration::from_millis(500);

/// What the holds of swarms name as their model.
const HOLD_MODEL: &str = "swarm";

/// What an executor works with. Cheap to clone.
#[derive(Clone)]
pub struct ExecutorParts {
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
    /// Who waits for something to be written.
    pub deltas: Deltas,
    /// Figures for Prometheus.
    pub metrics: Arc<Metrics>,
    /// Who records what is done.
    pub tracer: Tracer,
}

/// A run and what is known of it.
pub struct Running<'a> {
    /// What it works with.
    pub shop: &'a ExecutorParts,
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
    /// Held while a tool is called, from the intent to the result: an executor that stops waits for it.
    calling: &'a Mutex<()>,
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

/// Works on a run until it is over. While it calls a tool, it holds `calling`: dropped without that, it leaves no call of a
/// tool with an unknown outcome.
///
/// # Errors
///
/// Where the lease or the store is lost: whoever takes the run up next goes on where this has stopped.
pub async fn work(
    shop: &ExecutorParts,
    lease: &Lease,
    calling: &Mutex<()>,
) -> Result<(), LeaseError> {
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
        calling,
        hold: None,
    };
    let request = match request {
        Ok(request) => request,
        // It will not be read next time either.
        Err(error @ StoreError::Unreadable(_)) => {
            tracing::error!(run = running.run.id, %error, "a swarm cannot be read");
            let why = "What was asked for cannot be read any more.".to_owned();
            return running.end(None, &[], Some(Halt::Stopped(why))).await;
        }
        Err(error) => return Err(error.into()),
    };
    let mut results = Vec::new();
    let halt = match running.go_through(&request, &mut results).await {
        Ok(()) => None,
        Err(Break::Halt(halt)) => Some(halt),
        Err(Break::Leave(error)) => return Err(error),
    };
    running.end(Some(&request), &results, halt).await
}

impl Running<'_> {
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
        let place = number as i64;
        let started_at = match started_at {
            // A model call of it may be under way: nothing is reserved anew before that one is priced.
            Some(started_at) => started_at,
            None => {
                self.look().await?;
                if self.remaining() <= Credits::ZERO {
                    return Err(exhausted());
                }
                self.ensure_hold().await?;
                let now = self.shop.ledger.now();
                let told = json!({
                    "execution_id": self.run.id, "agent": agent.name, "number": number,
                    "agents_total": self.run.agents_total, "model": agent.model,
                });
                let told = &told;
                self.write(&Entry::BeginAgent {
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
        let mut told = json!(result);
        told["execution_id"] = json!(self.run.id);
        told["agent"] = told["name"].take();
        told["number"] = json!(number);
        told["output"] = json!(cut(&result.output, CONTENT_CHARS));
        if let Some(fields) = told.as_object_mut() {
            fields.remove("name");
        }
        let ended = Entry::EndAgent {
            number: place,
            result: &result,
            told: &told,
        };
        self.write(&ended).await?;
        self.trace
            .end_agent(place, &agent.model, started_at, &result);
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

    /// Whether the run goes on, where nothing is to be noted.
    pub async fn look(&self) -> Result<(), Break> {
        self.write(&Entry::Look).await
    }

    /// Reserves what may still be spent, for model calls to draw on; as much of it as is there.
    ///
    /// No model call may be under way: what it has reserved belongs to the same budget.
    pub async fn ensure_hold(&mut self) -> Result<(), Break> {
        if self.hold.is_some() {
            return Ok(());
        }
        loop {
            // What the claim before has reserved is for this run, and may be all that its user has.
            if let Some(before) = self.run.parent_hold.clone() {
                while let Err(error) = self.release(before.clone()).await {
                    self.wait_for_ledger(error).await?;
                }
                self.run.parent_hold = None;
            }
            match self.open_hold().await? {
                Ok(hold) => {
                    self.run.parent_hold = None;
                    self.hold = Some(hold);
                    return Ok(());
                }
                // Whether it is open is not known: it is released, and another one opened.
                Err(error) => self.wait_for_ledger(error).await?,
            }
        }
    }

    async fn open_hold(&mut self) -> Result<Result<ParentHold, LedgerError>, Break> {
        let account = AccountId(self.run.user_id.clone());
        let id = HoldId(ids::hold_id());
        // Named before it is opened: if this executor is gone in between, the next one releases it.
        self.write(&Entry::ParentHold(&id)).await?;
        self.run.parent_hold = Some(id.clone());
        let ledger = &self.shop.ledger;
        let kept = ledger.keep_open(&id);
        let wanted = self.remaining();
        let mut amount = wanted;
        // What is available may change between two tries.
        for _ in 0..4 {
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
            let opened = ledger.open(&account, open, Instant::now() + LEDGER_TIMEOUT);
            match opened.await {
                Ok(()) => {
                    return Ok(Ok(ParentHold {
                        ledger: ledger.clone(),
                        account,
                        id: Some(id),
                        _kept: kept,
                    }));
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
                Err(error) => return Ok(Err(error)),
            }
        }
        Err(stopped(
            "INSUFFICIENT_CREDITS: no credits are left.".to_owned(),
        ))
    }

    /// Waits a moment if the ledger is away, unless the run goes no further.
    async fn wait_for_ledger(&self, error: LedgerError) -> Result<(), Break> {
        match error {
            LedgerError::Late | LedgerError::Unavailable => {
                tracing::warn!(run = self.run.id, %error, "a swarm waits for the ledger");
                tokio::time::sleep(LEDGER_PAUSE).await;
                self.look().await
            }
            error => Err(LeaseError::Ledger(error).into()),
        }
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

    /// Adds what the ledger knows of model calls that were begun and whose answers nobody waits for any more.
    async fn price_calls(&mut self) -> Result<(), Break> {
        let calls = self.shop.store.unpriced_of(&self.run.id).await;
        for call in calls.map_err(LeaseError::from)? {
            let state = unpriced::find(&self.shop.ledger, &call).await;
            let CallState::Charged(price) = state.map_err(LeaseError::from)? else {
                continue;
            };
            let end = StepEnd {
                place: call.place,
                state: "failed",
                output: &Value::Null,
                credits: price.credits,
                tokens_in: price.tokens_in,
                tokens_out: price.tokens_out,
            };
            self.write(&Entry::EndStep {
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
        halt: Option<Halt>,
    ) -> Result<(), LeaseError> {
        self.release_hold().await;
        match self.price_calls().await {
            Ok(()) => {}
            Err(Break::Leave(LeaseError::Lost)) => return Err(LeaseError::Lost),
            // They are priced later.
            Err(error) => tracing::warn!(run = self.run.id, ?error, "pricing a swarm's calls"),
        }
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
        record.content.clone_from(&outcome.content);
        let ended = Entry::EndRun {
            status,
            outcome: &outcome,
            record: &record,
            request,
        };
        match self.write(&ended).await {
            Ok(()) => {}
            Err(Break::Leave(LeaseError::Lost)) if self.has_ended().await? => {}
            Err(Break::Leave(error)) => return Err(error),
            Err(Break::Halt(_)) => return Err(LeaseError::Lost),
        }
        let ended = self.shop.store.find(&self.run.id).await?;
        let status = ended.map_or(status, |run| run.status);
        self.shop.metrics.swarm_end(status.name());
        self.trace.end_run(&run, status);
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
