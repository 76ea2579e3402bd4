//! One tool call: records the intent, calls the tool, and records the result.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weir_identity::store::plan_of;
use weir_ledger::{AccountId, Credits, Plan};
use weir_sandbox::printable;
use weir_tools::{CallRecord, CallStatus, Effect, ToolInvocation, ToolOutcome};

use super::agent::AgentLoop;
use super::journal::JournalEntry;
use super::state::StepBreak;
use crate::swarm::store::{LeaseError, NewStep, StepEnd, StepPosition};

/// The maximum tool calls in one response of a model.
const MAX_CALLS: usize = 16;

/// The maximum bytes of a tool's name in a message to the model.
const MAX_NAME_BYTES: usize = 64;

/// The model's result for a call whose executor failed.
const UNCERTAIN: &str = "Error: the call was made, and its outcome is not known: it may have had its effect. It is not made \
                         again by itself. Find out before you repeat it.";

/// The same in the log of calls.
const NOT_REPEATED: &str = "outcome unknown: the executor that made the call is gone, and an unsafe call is not made again";

impl AgentLoop<'_, '_> {
    /// Returns the result of a call for the model, from a new or a recorded call.
    pub(super) async fn tool_step(
        &mut self,
        iteration: u32,
        index: usize,
        asked: &Value,
    ) -> Result<String, StepBreak> {
        let function = &asked["function"];
        let name = function["name"].as_str().unwrap_or_default();
        if index >= MAX_CALLS {
            return Ok(format!(
                "Error: no more than {MAX_CALLS} calls are made at once; ask again."
            ));
        }
        if !self.agent.tools.iter().any(|tool| tool.name == name) {
            let name = printable(name, MAX_NAME_BYTES);
            return Ok(format!("Error: there is no tool {name:?}."));
        }
        let place = StepPosition {
            agent: self.place,
            iteration: iteration.into(),
            ordinal: index as i64 + 1,
        };
        let known = self.running.step(place).cloned();
        if let Some(output) = known.as_ref().and_then(|step| step.output.as_ref()) {
            return Ok(output["content"].as_str().unwrap_or_default().to_owned());
        }
        let arguments = function["arguments"].as_str().unwrap_or_default();
        // This precedes the intent: if the credentials are unreadable, the call has not begun.
        let run = &self.running.run;
        let credentials = match &run.task_id {
            Some(task_id) => {
                let credentials = &self.running.parts.credentials;
                credentials.of(&run.user_id, task_id).await
            }
            None => Ok(Vec::new()),
        };
        let credentials = credentials.map_err(LeaseError::from)?;
        let plan = match self.agent.integrations.is_empty() {
            // No other case needs the plan.
            true => Plan::default(),
            false => plan_of(
                &self.running.parts.database,
                &run.user_id,
                self.running.parts.ledger.now(),
            )
            .await
            .map_err(LeaseError::from)?,
        };
        let calling = self.running.calling;
        let _calling = calling.lock().await;
        let key = match known {
            Some(step) if step.effect == Some(word(Effect::Unsafe)) => {
                return self.uncertain(place, name).await;
            }
            Some(step) => {
                self.running.look().await?;
                step.idempotency_key
            }
            None => self.intend_call(place, name, asked, arguments).await?,
        };
        let run = &self.running.run;
        let call = ToolInvocation {
            plan,
            tool: name.to_owned(),
            arguments: arguments.to_owned(),
            account: AccountId(run.user_id.clone()),
            webhook_urls: self.agent.webhook_urls.clone(),
            integrations: self.agent.integrations.clone(),
            credentials,
            idempotency_key: key,
            deadline: self.running.deadline(),
        };
        let mut span = self.running.trace.tool(self.place, name);
        let ToolOutcome {
            content,
            failed,
            record,
        } = self.running.parts.tools.call(call).await;
        let state = match (failed, record.status) {
            (_, CallStatus::Blocked) => "blocked",
            (true, CallStatus::Success) => "failed",
            (false, CallStatus::Success) => "done",
        };
        if let Some(span) = &mut span {
            span.set_if_known(
                "weir.component",
                record.digest.as_ref().map(ToString::to_string),
            );
            if state != "done" {
                span.fail(state);
            }
        }
        drop(span);
        let content = match failed {
            true => format!("Error: {content}"),
            false => content,
        };
        self.end_call(place, state, content, record).await
    }

    /// Records the intent of a call. Returns the call's idempotency key.
    async fn intend_call(
        &mut self,
        place: StepPosition,
        name: &str,
        asked: &Value,
        arguments: &str,
    ) -> Result<String, StepBreak> {
        let parts = self.running.parts;
        let input_hash: [u8; 32] = Sha256::digest(format!("{name}\n{arguments}")).into();
        let call_id = asked["id"].as_str().unwrap_or_default();
        let run_id = &self.running.run.id;
        let key = parts.store.call_key(run_id, place, call_id, &input_hash);
        let effect = parts
            .tools
            .effect(name, arguments, &self.agent.integrations);
        let effect = word(effect);
        let account = AccountId(self.running.run.user_id.clone());
        let digest = parts.tools.digest(name, &account);
        let digest = digest.map(|digest| digest.to_string());
        let step = NewStep {
            place,
            input_hash,
            effect: Some(&effect),
            idempotency_key: &key,
            output_limit: None,
            component_digest: digest.as_deref(),
        };
        self.running.write(&JournalEntry::Intend(&step)).await?;
        Ok(key)
    }

    /// Records the unknown outcome of a call that an earlier executor began.
    async fn uncertain(&mut self, place: StepPosition, name: &str) -> Result<String, StepBreak> {
        let record = CallRecord {
            tool: name.to_owned(),
            // The status describes the repeat, which is blocked; the outcome of the call itself is unknown.
            status: CallStatus::Blocked,
            url: String::new(),
            response_status: None,
            latency_ms: 0.0,
            blocked_reason: Some(NOT_REPEATED.to_owned()),
            digest: None,
        };
        self.end_call(place, "uncertain", UNCERTAIN.to_owned(), record)
            .await
    }

    async fn end_call(
        &mut self,
        place: StepPosition,
        state: &str,
        content: String,
        record: CallRecord,
    ) -> Result<String, StepBreak> {
        let end = StepEnd {
            place,
            state,
            output: &json!({ "content": content, "record": record }),
            credits: Credits::ZERO,
            tokens_in: 0,
            tokens_out: 0,
        };
        let mut told = json!(record);
        told["execution_id"] = json!(self.running.run.id);
        told["agent"] = json!(self.agent.name);
        told["number"] = json!(self.place);
        let ended = JournalEntry::EndStep {
            end: &end,
            told: Some(&told),
        };
        self.running.write(&ended).await?;
        self.running.ended(&end);
        Ok(content)
    }
}

/// The stored name of an effect.
fn word(effect: Effect) -> String {
    let word = json!(effect);
    word.as_str().unwrap_or_default().to_owned()
}
