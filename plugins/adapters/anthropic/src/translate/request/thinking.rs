//! The request for reasoning.
//!
//! Newer models decide on the amount themselves, guided by an effort; older models take a budget of tokens. The
//! model's name tells them apart: the older models are known, and their list will not grow.

use serde::Serialize;
use weir_sdk::adapter::Failure;
use weir_sdk::chat::{ChatRequest, ReasoningEffort};
use weir_sdk::wire::refuse;

use super::Context;
use crate::translate::options::{self, Options};

/// Minimum budget, in tokens.
const MIN_BUDGET_TOKENS: u32 = 1024;

/// Parts of the names of models that take only a budget.
const BUDGET_MODELS: [&str; 12] = [
    "claude-3",
    "opus-4-0",
    "opus-4-1",
    "opus-4-2025",
    "opus-4@",
    "opus-4-5",
    "sonnet-4-0",
    "sonnet-4-2025",
    "sonnet-4@",
    "sonnet-4-5",
    "haiku-4-5",
    "haiku-4@",
];

#[derive(Serialize)]
pub(super) struct Thinking {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    display: Option<&'static str>,
}

/// Returns the request for reasoning, and the effort.
pub(super) fn read(
    chat: &ChatRequest,
    options: &Options<'_>,
    context: &mut Context<'_>,
) -> Result<(Option<Thinking>, Option<&'static str>), Failure> {
    let reasoning = &chat.reasoning;
    let display = reasoning.summary.as_deref().map(|summary| match summary {
        "omitted" | "none" => "omitted",
        _ => "summarized",
    });
    let thinking = |kind, budget_tokens| Thinking {
        kind,
        budget_tokens,
        display,
    };
    let is_off = reasoning.effort == Some(ReasoningEffort::Off);
    let effort = reasoning.effort.and_then(word);
    let read = if let Some(budget) = reasoning.budget_tokens.filter(|_| !is_off) {
        (Some(thinking("enabled", Some(budget))), effort)
    } else if reasoning.adaptive == Some(true) && !is_off {
        (Some(thinking("adaptive", None)), effort)
    } else if is_off || reasoning.adaptive == Some(false) {
        let off = Thinking {
            kind: "disabled",
            budget_tokens: None,
            display: None,
        };
        (Some(off), effort)
    } else if context.client_speaks_it || effort.is_none() {
        // In this dialect an effort alone requests no reasoning.
        (None, effort)
    } else if is_adaptive(&chat.model, options) {
        (Some(thinking("adaptive", None)), effort)
    } else {
        let budget = budget_of(reasoning.effort, chat.max_output_tokens)?;
        (Some(thinking("enabled", Some(budget))), None)
    };
    let is_shown = read
        .0
        .as_ref()
        .is_some_and(|thinking| thinking.display.is_some());
    context
        .ignored
        .add_if(display.is_some() && !is_shown, "reasoning.summary");
    Ok(read)
}

fn word(effort: ReasoningEffort) -> Option<&'static str> {
    Some(match effort {
        ReasoningEffort::Off => return None,
        ReasoningEffort::Minimal | ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Highest => "max",
    })
}

fn is_adaptive(model: &str, options: &Options<'_>) -> bool {
    match options.thinking {
        options::Thinking::Adaptive => true,
        options::Thinking::Budget => false,
        options::Thinking::Auto => !BUDGET_MODELS.iter().any(|known| model.contains(known)),
    }
}

/// Returns a share of the output limit, which includes the reasoning.
fn budget_of(effort: Option<ReasoningEffort>, limit_tokens: u32) -> Result<u32, Failure> {
    if limit_tokens <= MIN_BUDGET_TOKENS {
        let what = format!(
            "reasoning with an output limit of {limit_tokens} tokens, which must be above {MIN_BUDGET_TOKENS}"
        );
        return Err(refuse("reasoning_effort", what));
    }
    let percent = match effort {
        Some(ReasoningEffort::Minimal) => 10,
        Some(ReasoningEffort::Low) => 20,
        Some(ReasoningEffort::High) => 80,
        Some(ReasoningEffort::Highest) => 95,
        _ => 50,
    };
    let budget = u64::from(limit_tokens) * percent / 100;
    Ok(u32::try_from(budget)
        .unwrap_or(u32::MAX)
        .clamp(MIN_BUDGET_TOKENS, limit_tokens - 1))
}
