//! What became of a swarm and of its agents, as clients are told.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_ledger::Credits;
use weir_storage::clock::Millis;

use crate::tools::CallRecord;

/// Characters of the content in a record.
pub const CONTENT_CHARS: usize = 10_000;

/// How far a swarm is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = SwarmStatus)]
pub enum Status {
    /// It waits for an executor.
    Queued,
    /// An executor has it.
    Running,
    /// All agents have finished.
    Completed,
    /// It stopped early, and at least one agent had finished.
    Partial,
    /// It stopped early, and none had; or it never began.
    Failed,
    /// Its user has cancelled it.
    Cancelled,
}

/// How an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// With an answer.
    Completed,
    /// Without a complete answer: its model could not be asked, was cut by its output limit or declined, or the swarm stopped
    /// meanwhile.
    Failed,
    /// It called tools to the last iteration. What it said last stands for its answer.
    MaxIterations,
}

/// What became of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentResult {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub status: AgentStatus,
    /// All that it said in the end.
    pub output: String,
    /// The price of its model's calls.
    #[schema(value_type = f64)]
    pub credits_used: Credits,
    /// Tokens of input, over all of its calls.
    pub tokens_in: i64,
    /// Tokens of output, over all of its calls.
    pub tokens_out: i64,
    /// How often its model was called.
    pub iterations: u32,
    /// Seconds from its start to its end, with all waits.
    pub duration_seconds: f64,
    /// The calls of its tools.
    pub tool_calls: Vec<CallRecord>,
    /// Why it failed.
    pub error: Option<String>,
}

/// What became of a swarm.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Swarm)]
pub struct Record {
    /// Its id: 32 hexadecimal digits.
    pub execution_id: String,
    /// As whoever asked names the pipeline.
    pub swarm_id: String,
    /// The task that it was run for.
    pub task_id: Option<String>,
    /// Who pays.
    pub user_id: String,
    /// How far it is.
    pub status: Status,
    /// How many agents have completed.
    pub agents_completed: i64,
    /// How many there are.
    pub agents_total: i64,
    /// What the last agent said, up to [`CONTENT_CHARS`] characters.
    pub content: String,
    /// The price of all calls so far.
    #[schema(value_type = f64)]
    pub total_credits: Credits,
    /// Tokens of input so far.
    pub tokens_in: i64,
    /// Tokens of output so far.
    pub tokens_out: i64,
    /// Why it stopped early.
    pub error: Option<String>,
    /// When it was asked for.
    pub created_at: String,
}

/// The end of a swarm, as it is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What the last agent said, cut.
    pub content: String,
    /// Why it stopped early.
    pub error: Option<String>,
}

impl Status {
    /// Its name in the API and the database.
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

    /// The status of a name.
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

    /// Whether nothing more comes.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

impl AgentStatus {
    /// Whether the pipeline goes on behind it.
    pub fn has_finished(self) -> bool {
        matches!(self, Self::Completed | Self::MaxIterations)
    }
}

/// How a swarm ends whose agents ended like this. `stopped` is whether it ends early.
pub fn status_of(results: &[AgentResult], stopped: bool) -> Status {
    let any = results.iter().any(|result| result.status.has_finished());
    match (stopped, any) {
        (false, _) => Status::Completed,
        (true, true) => Status::Partial,
        (true, false) => Status::Failed,
    }
}

/// A text's first characters.
pub fn cut(text: &str, chars: usize) -> &str {
    match text.char_indices().nth(chars) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Seconds between two moments.
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
            (&[Completed, Completed][..], false, Status::Completed),
            (&[Completed, MaxIterations], false, Status::Completed),
            (&[Completed, Failed], true, Status::Partial),
            (&[MaxIterations, Failed], true, Status::Partial),
            (&[Completed], true, Status::Partial),
            (&[Failed], true, Status::Failed),
            (&[], true, Status::Failed),
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
            assert_eq!(Status::named(name).map(Status::name), Some(name));
        }
        assert_eq!(Status::named("waiting"), None);
    }
}
