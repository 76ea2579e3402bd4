//! The results of a swarm and of its agents, for clients.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_ledger::Credits;
use weir_storage::clock::Millis;
use weir_tools::CallRecord;

/// The maximum characters of the content in a record.
pub const CONTENT_CHARS: usize = 10_000;

/// The status of a swarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = SwarmStatus)]
pub enum SwarmStatus {
    /// The swarm waits for an executor.
    Queued,
    /// An executor runs the swarm.
    Running,
    /// All agents have finished.
    Completed,
    /// The swarm stopped early, but at least one agent had finished.
    Partial,
    /// The swarm stopped early, before any agent had finished, or never began.
    Failed,
    /// The user cancelled the swarm.
    Cancelled,
}

/// The final status of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// The agent gave a complete response.
    Completed,
    /// The agent gave no complete response: its model was unavailable, reached its output limit or declined, or the
    /// swarm stopped meanwhile.
    Failed,
    /// The agent called tools up to the last iteration. Its last text counts as its output.
    MaxIterations,
}

/// The result of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentResult {
    /// Name of the agent.
    pub name: String,
    /// Final status.
    pub status: AgentStatus,
    /// Complete final output.
    pub output: String,
    /// Price of the agent's model calls.
    #[schema(value_type = f64)]
    pub credits_used: Credits,
    /// Tokens of input, over all calls.
    pub tokens_in: i64,
    /// Tokens of output, over all calls.
    pub tokens_out: i64,
    /// Number of model calls.
    pub iterations: u32,
    /// Seconds from start to end, all waits included.
    pub duration_seconds: f64,
    /// Calls of tools.
    pub tool_calls: Vec<CallRecord>,
    /// Reason of a failure.
    pub error: Option<String>,
}

/// The record of a swarm.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Swarm)]
pub struct SwarmRecord {
    /// The swarm's id: 32 hexadecimal digits.
    pub execution_id: String,
    /// Client's name of the pipeline.
    pub swarm_id: String,
    /// Task of the swarm.
    pub task_id: Option<String>,
    /// User who pays.
    pub user_id: String,
    /// Status of the swarm.
    pub status: SwarmStatus,
    /// Number of completed agents.
    pub agents_completed: i64,
    /// Number of agents.
    pub agents_total: i64,
    /// Output of the last agent, up to 10,000 characters.
    pub content: String,
    /// Price of all calls so far.
    #[schema(value_type = f64)]
    pub total_credits: Credits,
    /// Tokens of input so far.
    pub tokens_in: i64,
    /// Tokens of output so far.
    pub tokens_out: i64,
    /// Reason of an early stop.
    pub error: Option<String>,
    /// Time of the request.
    pub created_at: String,
    /// The wait of a running swarm that works on nothing meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<SwarmWait>,
}

/// The wait of a swarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SwarmWait {
    /// Name of the agent.
    pub agent: String,
    /// Position of the agent in the order of execution, from 0.
    pub number: i64,
    /// Iteration of the agent, from 1.
    pub iteration: u32,
    /// The cause: `model`, for the next try at the agent's model.
    pub waiting_for: &'static str,
    /// Time of the first failed try.
    pub since: String,
    /// Number of failed tries.
    pub tries: u32,
    /// Time of the next try.
    pub next_try_at: String,
    /// Reason of the last failure.
    pub last_error: String,
}

/// The stored failures of a model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunWait {
    /// Name of the agent.
    pub agent: String,
    /// Position of the agent.
    pub number: i64,
    pub iteration: u32,
    /// The time of the first failed try.
    pub since: Millis,
    /// The number of failed tries.
    pub tries: u32,
    pub next_try_at: Millis,
    /// The reason of the last failure.
    pub last_error: String,
}

impl RunWait {
    /// Returns its form for clients.
    pub fn shown(&self) -> SwarmWait {
        SwarmWait {
            agent: self.agent.clone(),
            number: self.number,
            iteration: self.iteration,
            waiting_for: "model",
            since: self.since.iso(),
            tries: self.tries,
            next_try_at: self.next_try_at.iso(),
            last_error: self.last_error.clone(),
        }
    }
}

/// The stored end of a swarm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwarmOutcome {
    /// The shortened output of the last agent.
    pub content: String,
    /// Reason of an early stop.
    pub error: Option<String>,
}

impl SwarmStatus {
    /// The status's name in the API and the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [
            Self::Queued,
            Self::Running,
            Self::Completed,
            Self::Partial,
            Self::Failed,
            Self::Cancelled,
        ]
        .into_iter()
        .find(|status| status.name() == name)
    }

    /// Whether the status is final.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

impl AgentStatus {
    /// Whether later agents run after an agent with this status.
    pub fn has_finished(self) -> bool {
        matches!(self, Self::Completed | Self::MaxIterations)
    }
}

/// Returns the final status of a swarm whose agents have these results. `stopped` means an early end.
pub fn status_of(results: &[AgentResult], stopped: bool) -> SwarmStatus {
    let any = results.iter().any(|result| result.status.has_finished());
    match (stopped, any) {
        (false, _) => SwarmStatus::Completed,
        (true, true) => SwarmStatus::Partial,
        (true, false) => SwarmStatus::Failed,
    }
}

/// Returns a text's first characters.
pub fn cut(text: &str, chars: usize) -> &str {
    match text.char_indices().nth(chars) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Returns the seconds between two times.
pub fn seconds_between(from: Millis, to: Millis) -> f64 {
    to.0.saturating_sub(from.0).max(0) as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(status: AgentStatus) -> AgentResult {
        AgentResult {
            name: "a".to_owned(),
            status,
            output: String::new(),
            credits_used: Credits::ZERO,
            tokens_in: 0,
            tokens_out: 0,
            iterations: 1,
            duration_seconds: 0.0,
            tool_calls: Vec::new(),
            error: None,
        }
    }

    #[test]
    fn a_swarm_is_partial_where_any_agent_has_finished_before_it_stopped() {
        use AgentStatus::{Completed, Failed, MaxIterations};
        for (agents, stopped, status) in [
            (&[Completed, Completed][..], false, SwarmStatus::Completed),
            (&[Completed, MaxIterations], false, SwarmStatus::Completed),
            (&[Completed, Failed], true, SwarmStatus::Partial),
            (&[MaxIterations, Failed], true, SwarmStatus::Partial),
            (&[Completed], true, SwarmStatus::Partial),
            (&[Failed], true, SwarmStatus::Failed),
            (&[], true, SwarmStatus::Failed),
        ] {
            let results: Vec<_> = agents.iter().map(|status| result(*status)).collect();
            assert_eq!(status_of(&results, stopped), status, "{agents:?}");
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        for (text, chars, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "abc"),
            ("żółw", 2, "żó"),
            ("", 0, ""),
        ] {
            assert_eq!(cut(text, chars), expected);
        }
    }

    #[test]
    fn every_status_is_found_by_its_name() {
        for name in [
            "queued",
            "running",
            "completed",
            "partial",
            "failed",
            "cancelled",
        ] {
            assert_eq!(SwarmStatus::named(name).map(SwarmStatus::name), Some(name));
        }
        assert_eq!(SwarmStatus::named("waiting"), None);
    }
}
