//! One agent: its model is called until it gives an answer.

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};
use weir_ledger::Credits;
use weir_ledger::pricing::{self, Bound};
use weir_sandbox::printable;

use super::journal::Entry;
use super::{Break, EXHAUSTED, Halt, Running, text_of};
use crate::inference::deltas::ModelStep;
use crate::swarm::estimate::LEAST_TOKENS;
use crate::swarm::model::{CallError, ModelAnswer, ModelCall};
use crate::swarm::record::AgentStatus;
use crate::swarm::request::Agent;
use crate::swarm::store::{LeaseError, NewStep, Place, Step, StepEnd};
use weir_upstream::usage::OUTPUT_SLACK_TOKENS;

/// How often a call is made anew whose answer was lost and not charged.
const MAX_ANEW: usize = 3;

/// How often an output limit is lowered before the rest of the budget counts as too little.
const MAX_LOWERED: usize = 4;

/// Bytes of a refusal that users are told.
const MAX_REFUSAL_BYTES: usize = 300;
/// The pauses before a model is asked again that was busy or unavailable.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What users are told of an answer that was charged, and is not there.
const LOST: &str = "The model's answer was lost.";

/// How an agent has ended.
pub(super) struct AgentEnd {
    /// As the swarm's user is told.
    pub(super) status: AgentStatus,
    /// What it said in the end.
    pub(super) output: String,
    /// Why it failed.
    pub(super) error: Option<String>,
    /// How often its model was called.
    pub(super) iterations: u32,
    /// Why the run goes no further, where it is not for this agent's sake.
    pub(super) halt: Option<Halt>,
}

/// An agent that runs.
pub(super) struct AgentLoop<'l, 'r> {
    pub(super) running: &'l mut Running<'r>,
    pub(super) agent: &'l Agent,
    pub(super) place: i64,
    messages: Vec<Value>,
    /// Its tools, as models are told of them.
    tools: Vec<Value>,
    /// What it said last.
    last_text: String,
}

impl<'l, 'r> AgentLoop<'l, 'r> {
    /// An agent at a place in the order, with its system prompt.
    pub(super) fn new(
        running: &'l mut Running<'r>,
        agent: &'l Agent,
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

    /// Runs it to its end.
    pub(super) async fn run(mut self) -> Result<AgentEnd, Break> {
        for iteration in 1..=self.agent.max_iterations {
            let message = match self.model_step(iteration).await {
                Ok(message) => message,
                Err(Ended::Break(Break::Halt(halt))) => {
                    return Ok(self.halted(iteration - 1, halt));
                }
                Err(Ended::Break(leave)) => return Err(leave),
                Err(Ended::Failed(why)) => return Ok(self.failed(why, iteration, None)),
            };
            let text = text_of(&message);
            if !text.is_empty() {
                text.clone_into(&mut self.last_text);
            }
            let calls = message["tool_calls"].as_array().cloned();
            let calls = calls.unwrap_or_default();
            // Before its calls are made: the last one may be incomplete.
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
                    Err(Break::Halt(halt)) => return Ok(self.halted(iteration, halt)),
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

    fn halted(self, iterations: u32, halt: Halt) -> AgentEnd {
        let why = match &halt {
            Halt::Stopped(why) => why.clone(),
            Halt::Cancelled => "The swarm was cancelled.".to_owned(),
        };
        self.failed(why, iterations, Some(halt))
    }

    fn failed(self, error: String, iterations: u32, halt: Option<Halt>) -> AgentEnd {
        AgentEnd {
            status: AgentStatus::Failed,
            output: self.last_text,
            error: Some(error),
            iterations,
            halt,
        }
    }

    /// What the model says in an iteration: now, or when the step was taken.
    async fn model_step(&mut self, iteration: u32) -> Result<Value, Ended> {
        let place = Place {
            agent: self.place,
            iteration: iteration.into(),
            ordinal: 0,
        };
        let known = self.running.step(place);
        let (mut key, mut limit, mut is_noted) = match known {
            Some(Step {
                output: Some(output),
                ..
            }) if output.is_null() => return Err(Ended::Failed(LOST.to_owned())),
            Some(Step {
                output: Some(output),
                ..
            }) => return Ok(output.clone()),
            // As it was sent before, so that it is the same request.
            Some(step) => (
                step.idempotency_key.clone(),
                step.output_limit.unwrap_or(self.agent.max_tokens),
                true,
            ),
            None => (self.key(iteration), self.agent.max_tokens, false),
        };
        match is_noted {
            // Its price is part of what was reserved for it, and is known before the rest is reserved anew.
            true => self.running.look().await?,
            false => {
                self.running.ensure_hold().await?;
                if self.running.remaining() <= Credits::ZERO {
                    return Err(exhausted());
                }
            }
        }
        let (mut lowered, mut anew) = (0, 0);
        let mut pause = FIRST_PAUSE;
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
            match self.running.shop.api.call(&call).await {
                Ok(answer) => return Ok(self.done(place, answer).await?),
                Err(CallError::TooDear {
                    required,
                    available,
                }) => {
                    lowered += 1;
                    let fits = self.fitting(limit, required, available);
                    match fits.filter(|_| lowered <= MAX_LOWERED) {
                        Some(lower) => limit = lower,
                        None => return Err(exhausted()),
                    }
                }
                // Where nothing was charged, nothing is charged twice.
                Err(CallError::Lost { charged }) if charged == Credits::ZERO && anew < MAX_ANEW => {
                    anew += 1;
                    key.push('+');
                }
                Err(CallError::Lost { charged }) => {
                    self.lost(place, charged).await?;
                    return Err(Ended::Failed(LOST.to_owned()));
                }
                Err(CallError::NoHold) => self.running.replace_hold().await?,
                Err(CallError::Fenced) => return Err(Break::Leave(LeaseError::Lost).into()),
                Err(CallError::Later { why, after }) => {
                    let wait = pause.max(after.unwrap_or_default());
                    if Instant::now() + wait > self.running.deadline() {
                        return Err(Ended::Failed(why));
                    }
                    tracing::debug!(run = self.running.run.id, why, "asking the API again");
                    sleep(wait).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    self.running.look().await?;
                    // What is noted is what is asked for again.
                    is_noted = true;
                    continue;
                }
                Err(CallError::Failed(why)) => return Err(Ended::Failed(why)),
                Err(CallError::Late) => {
                    return Err(Ended::Failed("The swarm took too long.".to_owned()));
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

    async fn intend(
        &mut self,
        place: Place,
        key: &str,
        limit: u32,
        body: &Value,
    ) -> Result<(), Break> {
        let step = NewStep {
            place,
            input_hash: Sha256::digest(body.to_string()).into(),
            effect: None,
            idempotency_key: key,
            output_limit: Some(limit),
            component_digest: None,
        };
        self.running.write(&Entry::Intend(&step)).await
    }

    async fn done(&mut self, place: Place, answer: ModelAnswer) -> Result<Value, Break> {
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

    async fn lost(&mut self, place: Place, charged: Credits) -> Result<(), Break> {
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

    async fn end(&mut self, end: &StepEnd<'_, Value>) -> Result<(), Break> {
        self.running
            .write(&Entry::EndStep { end, told: None })
            .await?;
        self.running.ended(end);
        Ok(())
    }

    /// The largest output limit whose price fits into what is left; none if that is too small.
    fn fitting(&self, limit: u32, required: Credits, available: Credits) -> Option<u32> {
        let catalog = self.running.shop.catalog.load();
        let model = catalog.model(&self.agent.model)?;
        let output_price = |tokens: u64| {
            let bound = Bound {
                input_tokens: 0,
                output_tokens: tokens,
                images: 0,
            };
            let prices = model.candidates.iter().map(|candidate| &candidate.price);
            let worst = prices.map(|price| pricing::worst_case(price, &catalog.factors, &bound));
            worst.max().unwrap_or(Credits::ZERO)
        };
        lowered(limit, required, available, output_price)
    }
}

/// Why a model's message is no complete answer, if it is none. Each reason begins with the word for it.
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

/// Why an iteration brings nothing.
enum Ended {
    Break(Break),
    Failed(String),
}

impl From<Break> for Ended {
    fn from(stop: Break) -> Self {
        Self::Break(stop)
    }
}

fn exhausted() -> Ended {
    Ended::Break(Break::Halt(Halt::Stopped(EXHAUSTED.to_owned())))
}

/// The output limit that makes a call of `required` credits one of `available`, where the output of so many tokens costs
/// `output_price` of them; none if it is less than [`LEAST_TOKENS`].
fn lowered(
    limit: u32,
    required: Credits,
    available: Credits,
    output_price: impl Fn(u64) -> Credits,
) -> Option<u32> {
    let with_slack = |limit: u32| output_price(u64::from(limit) + OUTPUT_SLACK_TOKENS);
    let input = required.saturating_sub(with_slack(limit));
    // Each is rounded up, so that together they may be less than their sum.
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
        // A micro-credit a token.
        let price = |tokens: u64| Credits::from_micro(tokens as i64);
        let micro = Credits::from_micro;
        for (limit, required, available, expected) in [
            // 100 of input, 64 of slack.
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
