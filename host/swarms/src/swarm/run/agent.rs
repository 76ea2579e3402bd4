//! One agent: calls its model until the final response.

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::sleep;
use weir_inference::deltas::ModelStep;
use weir_ledger::Credits;
use weir_ledger::pricing::{self, UsageBound};
use weir_sandbox::printable;
use weir_storage::clock::Millis;
use weir_upstream::usage::OUTPUT_SLACK_TOKENS;

use super::journal::JournalEntry;
use super::state::{ActiveRun, EXHAUSTED, RunHalt, StepBreak, refused, text_of};
use crate::swarm::estimate::LEAST_TOKENS;
use crate::swarm::model::{ModelAnswer, ModelCall, ModelCallError};
use crate::swarm::record::{AgentStatus, RunWait};
use crate::swarm::request::SwarmAgent;
use crate::swarm::store::{LeaseError, NewStep, RunStep, StepEnd, StepPosition};

/// The maximum repeats of a call whose response was lost without a charge.
const MAX_ANEW: usize = 3;

/// The maximum reductions of an output limit before the rest of the budget counts as too small.
const MAX_LOWERED: usize = 4;

/// The maximum bytes of a refusal in a message to users.
const MAX_REFUSAL_BYTES: usize = 300;

/// The pauses before the next try at a model, each four times as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The longest pause while weir itself is unavailable.
const OWN_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause in which a run stays with its executor.
const SHORT_PAUSE: Duration = Duration::from_secs(1);

/// The maximum tries of a model call that fail at providers.
const MAX_TRIES: u32 = 6;

/// The maximum time of all tries of a model call.
const MAX_TRYING: Duration = Duration::from_secs(600);

/// The user's message for a charged but lost response.
const LOST: &str = "The model's answer was lost.";

pub(super) struct AgentEnd {
    pub(super) status: AgentStatus,
    pub(super) output: String,
    /// The reason of a failure.
    pub(super) error: Option<String>,
    /// The number of model calls.
    pub(super) iterations: u32,
    /// The end of the run, if another cause than this agent ends it.
    pub(super) halt: Option<RunHalt>,
}

pub(super) struct AgentLoop<'l, 'r> {
    pub(super) running: &'l mut ActiveRun<'r>,
    pub(super) agent: &'l SwarmAgent,
    pub(super) place: i64,
    messages: Vec<Value>,
    /// The tools in the models' format.
    tools: Vec<Value>,
    last_text: String,
}

impl<'l, 'r> AgentLoop<'l, 'r> {
    /// Returns the agent at a position, with its system prompt.
    pub(super) fn new(
        running: &'l mut ActiveRun<'r>,
        agent: &'l SwarmAgent,
        place: i64,
        system_prompt: &str,
    ) -> Self {
        let mut messages = Vec::new();
        if !system_prompt.is_empty() {
            messages.push(json!({ "role": "system", "content": system_prompt }));
        }
        messages.push(json!({ "role": "user", "content": agent.task_prompt }));
        let tools = agent
            .tools
            .iter()
            .map(|tool| json!({ "type": "function", "function": tool }))
            .collect();
        Self {
            running,
            agent,
            place,
            messages,
            tools,
            last_text: String::new(),
        }
    }

    pub(super) async fn run(mut self) -> Result<AgentEnd, StepBreak> {
        for iteration in 1..=self.agent.max_iterations {
            let message = match self.model_step(iteration).await {
                Ok(message) => message,
                Err(IterationEnd::Break(StepBreak::Halt(halt))) => {
                    return Ok(self.halted(iteration - 1, halt));
                }
                Err(IterationEnd::Break(leave)) => return Err(leave),
                Err(IterationEnd::Failed(why)) => return Ok(self.failed(why, iteration, None)),
            };
            let text = text_of(&message);
            if !text.is_empty() {
                text.clone_into(&mut self.last_text);
            }
            let calls = message["tool_calls"].as_array().cloned();
            let calls = calls.unwrap_or_default();
            // The check precedes the tool calls, because the last call may be incomplete.
            if let Some(why) = incomplete(&message, calls.is_empty()) {
                return Ok(self.failed(why, iteration, None));
            }
            if calls.is_empty() {
                return Ok(AgentEnd {
                    status: AgentStatus::Completed,
                    output: text.to_owned(),
                    error: None,
                    iterations: iteration,
                    halt: None,
                });
            }
            self.messages.push(message);
            for (index, call) in calls.iter().enumerate() {
                let content = match self.tool_step(iteration, index, call).await {
                    Ok(content) => content,
                    Err(StepBreak::Halt(halt)) => return Ok(self.halted(iteration, halt)),
                    Err(leave) => return Err(leave),
                };
                self.messages.push(json!({
                    "role": "tool", "tool_call_id": call["id"], "content": content,
                }));
            }
        }
        Ok(AgentEnd {
            status: AgentStatus::MaxIterations,
            output: self.last_text,
            error: None,
            iterations: self.agent.max_iterations,
            halt: None,
        })
    }

    fn halted(self, iterations: u32, halt: RunHalt) -> AgentEnd {
        let why = match &halt {
            RunHalt::Stopped(why) => why.clone(),
            RunHalt::Cancelled => "The swarm was cancelled.".to_owned(),
        };
        self.failed(why, iterations, Some(halt))
    }

    fn failed(self, error: String, iterations: u32, halt: Option<RunHalt>) -> AgentEnd {
        AgentEnd {
            status: AgentStatus::Failed,
            output: self.last_text,
            error: Some(error),
            iterations,
            halt,
        }
    }

    /// Returns the model's message of an iteration, from a new or a recorded call.
    async fn model_step(&mut self, iteration: u32) -> Result<Value, IterationEnd> {
        let place = StepPosition {
            agent: self.place,
            iteration: iteration.into(),
            ordinal: 0,
        };
        let known = self.running.step(place);
        let (mut key, mut limit, mut is_noted) = match known {
            Some(RunStep {
                output: Some(output),
                ..
            }) if output.is_null() => return Err(IterationEnd::Failed(LOST.to_owned())),
            Some(RunStep {
                output: Some(output),
                ..
            }) => return Ok(output.clone()),
            // The call repeats the recorded request exactly.
            Some(step) => (
                step.idempotency_key.clone(),
                step.output_limit.unwrap_or(self.agent.max_tokens),
                true,
            ),
            None => (self.key(iteration), self.agent.max_tokens, false),
        };
        match is_noted {
            true => self.running.look().await?,
            false => {
                if self.running.remaining() <= Credits::ZERO {
                    return Err(exhausted());
                }
            }
        }
        let (mut lowered, mut anew) = (0, 0);
        loop {
            let body = self.body(iteration, limit);
            if !is_noted {
                self.intend(place, &key, limit, &body).await?;
            }
            let trace = self.running.trace.agent(self.place);
            let call = ModelCall {
                trace: trace.as_ref(),
                body: &body,
                idempotency_key: &key,
                fence: self.running.lease.fence,
                deadline: self.running.deadline(),
            };
            match self.running.parts.api.call(&call).await {
                Ok(answer) => return Ok(self.done(place, answer).await?),
                Err(ModelCallError::TooDear {
                    required,
                    available,
                }) => {
                    lowered += 1;
                    let fits = self.fitting(limit, required, available);
                    match fits.filter(|_| lowered <= MAX_LOWERED) {
                        Some(lower) => limit = lower,
                        None if available < self.running.remaining() => {
                            return Err(without_credits());
                        }
                        None => return Err(exhausted()),
                    }
                }
                // Without a charge, a repeat charges nothing twice.
                Err(ModelCallError::Lost { charged })
                    if charged == Credits::ZERO && anew < MAX_ANEW =>
                {
                    anew += 1;
                    key.push('+');
                }
                Err(ModelCallError::Lost { charged }) => {
                    self.lost(place, charged).await?;
                    return Err(IterationEnd::Failed(LOST.to_owned()));
                }
                Err(ModelCallError::Fenced) => {
                    return Err(StepBreak::Leave(LeaseError::Lost).into());
                }
                Err(ModelCallError::Later { why, after, is_own }) => {
                    self.pause(iteration, why, after, is_own).await?;
                    // A repeat uses the recorded request.
                    is_noted = true;
                    continue;
                }
                Err(ModelCallError::Refused { code, why }) => {
                    return Err(refused(&code, &why).into());
                }
                Err(ModelCallError::Failed(why)) => return Err(IterationEnd::Failed(why)),
                Err(ModelCallError::Late) => {
                    return Err(IterationEnd::Failed(
                        "The swarm exceeded its deadline.".to_owned(),
                    ));
                }
            }
            is_noted = false;
        }
    }

    fn key(&self, iteration: u32) -> String {
        format!("swarm:{}:{}:{iteration}", self.running.run.id, self.place)
    }

    fn body(&self, iteration: u32, limit: u32) -> Value {
        let step = ModelStep {
            agent: self.agent.name.clone(),
            number: self.place,
            iteration,
        };
        let mut body = json!({
            "execution_id": self.running.run.id,
            "step": step,
            "model": self.agent.model,
            "messages": self.messages,
            "temperature": self.agent.temperature,
            "max_tokens": limit,
        });
        if !self.tools.is_empty() {
            body["tools"] = json!(self.tools);
        }
        body
    }

    /// Waits before the next try of a failed model call. In a long pause, the run leaves its executor.
    async fn pause(
        &mut self,
        iteration: u32,
        why: String,
        after: Option<Duration>,
        is_own: bool,
    ) -> Result<(), IterationEnd> {
        let now = self.running.parts.ledger.now();
        let known = self.running.run.waiting.take();
        let known = known.filter(|wait| wait.number == self.place);
        let (since, tries) = known.map_or((now, 0), |wait| (wait.since, wait.tries));
        let tries = tries.saturating_add(1);
        let longest = if is_own { OWN_PAUSE } else { LONGEST_PAUSE };
        let pause = FIRST_PAUSE * 4_u32.saturating_pow(tries - 1).min(1_000);
        let pause = pause.min(longest).max(after.unwrap_or_default());
        let next_try_at = Millis(now.0 + pause.as_millis() as i64);
        let is_last = !is_own && tries >= MAX_TRIES;
        let gives_up_at = Millis(since.0 + MAX_TRYING.as_millis() as i64);
        if is_last || next_try_at > gives_up_at || next_try_at > self.running.run.deadline {
            return Err(IterationEnd::Failed(why));
        }
        let wait = RunWait {
            agent: self.agent.name.clone(),
            number: self.place,
            iteration,
            since,
            tries,
            next_try_at,
            last_error: why,
        };
        tracing::debug!(
            run = self.running.run.id,
            ?wait,
            "a model call waits for its next try"
        );
        if !is_own && pause > SHORT_PAUSE {
            let (wait, until) = (&wait, next_try_at);
            self.running
                .write(&JournalEntry::Leave { wait, until })
                .await?;
            return Err(StepBreak::Waits.into());
        }
        self.running.run.waiting = Some(wait);
        sleep(pause).await;
        Ok(self.running.look().await?)
    }

    async fn intend(
        &mut self,
        place: StepPosition,
        key: &str,
        limit: u32,
        body: &Value,
    ) -> Result<(), StepBreak> {
        let step = NewStep {
            place,
            input_hash: Sha256::digest(body.to_string()).into(),
            effect: None,
            idempotency_key: key,
            output_limit: Some(limit),
            component_digest: None,
        };
        self.running.write(&JournalEntry::Intend(&step)).await
    }

    async fn done(&mut self, place: StepPosition, answer: ModelAnswer) -> Result<Value, StepBreak> {
        let end = StepEnd {
            place,
            state: "done",
            output: &answer.message,
            credits: answer.credits,
            tokens_in: answer.tokens_in,
            tokens_out: answer.tokens_out,
        };
        self.end(&end).await?;
        Ok(answer.message)
    }

    async fn lost(&mut self, place: StepPosition, charged: Credits) -> Result<(), StepBreak> {
        let end = StepEnd {
            place,
            state: "failed",
            output: &Value::Null,
            credits: charged,
            tokens_in: 0,
            tokens_out: 0,
        };
        self.end(&end).await
    }

    async fn end(&mut self, end: &StepEnd<'_, Value>) -> Result<(), StepBreak> {
        self.running
            .write(&JournalEntry::EndStep { end, told: None })
            .await?;
        self.running.ended(end);
        Ok(())
    }

    /// Returns the largest output limit whose price fits into the rest of the budget; `None` if it is too small.
    fn fitting(&self, limit: u32, required: Credits, available: Credits) -> Option<u32> {
        let catalog = self.running.parts.catalog.load();
        let model = catalog.model(&self.agent.model)?;
        // The plan may have changed since the start; a lower limit than necessary does no harm.
        let factors = catalog.highest_factors();
        let output_price = |tokens: u64| {
            let bound = UsageBound {
                output_tokens: tokens,
                ..UsageBound::default()
            };
            let prices = model.candidates.iter().map(|candidate| &candidate.price);
            let worst = prices.map(|price| pricing::worst_case(price, &factors, &bound));
            worst.max().unwrap_or(Credits::ZERO)
        };
        lowered(limit, required, available, output_price)
    }
}

/// Whether a model's message is incomplete, so that its agent failed with it.
pub(in crate::swarm) fn is_incomplete(message: &Value) -> bool {
    let calls = message["tool_calls"].as_array();
    incomplete(message, calls.is_none_or(Vec::is_empty)).is_some()
}

/// Returns the reason for which a model's message is incomplete. Each reason begins with its code word.
fn incomplete(message: &Value, is_without_calls: bool) -> Option<String> {
    let refusal = message["refusal"].as_str().unwrap_or_default();
    match message["finish_reason"].as_str() {
        Some("length") => Some(
            "length: the model's answer was cut at its output limit. A higher `max_tokens`, or a larger budget, leaves room \
             for all of it."
                .to_owned(),
        ),
        Some("content_filter") => {
            Some("content_filter: the model's provider held back the answer.".to_owned())
        }
        _ if !is_without_calls || !text_of(message).is_empty() => None,
        _ if refusal.is_empty() => Some("empty: the model gave no answer.".to_owned()),
        _ => Some(format!(
            "refusal: the model declined: {}",
            printable(refusal, MAX_REFUSAL_BYTES)
        )),
    }
}

/// The reasons for which an iteration has no result.
enum IterationEnd {
    Break(StepBreak),
    Failed(String),
}

impl From<StepBreak> for IterationEnd {
    fn from(stop: StepBreak) -> Self {
        Self::Break(stop)
    }
}

fn without_credits() -> IterationEnd {
    let why = "INSUFFICIENT_CREDITS: no credits are left.".to_owned();
    IterationEnd::Break(StepBreak::Halt(RunHalt::Stopped(why)))
}

fn exhausted() -> IterationEnd {
    IterationEnd::Break(StepBreak::Halt(RunHalt::Stopped(EXHAUSTED.to_owned())))
}

/// Returns the output limit that reduces a call's price from `required` to `available` credits, if `output_price` is
/// the price of the current output limit; `None` below [`LEAST_TOKENS`].
fn lowered(
    limit: u32,
    required: Credits,
    available: Credits,
    output_price: impl Fn(u64) -> Credits,
) -> Option<u32> {
    let with_slack = |limit: u32| output_price(u64::from(limit) + OUTPUT_SLACK_TOKENS);
    let input = required.saturating_sub(with_slack(limit));
    // Both parts are rounded up, so that their sum may exceed the total.
    let left = available.saturating_sub(input);
    let mut low = LEAST_TOKENS;
    let mut high = limit.checked_sub(1)?;
    if high < low || with_slack(low) > left {
        return None;
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match with_slack(middle) <= left {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_too_dear_gets_the_largest_limit_that_fits() {
        // One micro-credit a token.
        let price = |tokens: u64| Credits::from_micro(tokens as i64);
        let micro = Credits::from_micro;
        for (limit, required, available, expected) in [
            // 100 tokens of input, 64 of slack.
            (1_000, 1_164, 1_163, Some(999)),
            (1_000, 1_164, 500, Some(336)),
            (1_000, 1_164, 420, Some(256)),
            (1_000, 1_164, 419, None),
            (1_000, 1_164, 0, None),
            (256, 420, 419, None),
        ] {
            let found = lowered(limit, micro(required), micro(available), price);
            assert_eq!(found, expected, "{limit} {required} {available}");
        }
    }
}
