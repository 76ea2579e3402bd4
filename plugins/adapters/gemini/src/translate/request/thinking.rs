//! The request for reasoning: a level for models from version 3 on, a budget of tokens for earlier ones.

use serde::Serialize;
use weir_sdk::chat::{ChatRequest, ReasoningEffort};

use super::Context;

/// A budget that the model chooses itself.
const DYNAMIC: i64 = -1;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThinkingConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    include_thoughts: Option<bool>,
}

/// Returns whether a model's version takes a budget, and needs no signature for calls.
pub(super) fn is_before_3(model: &str) -> bool {
    ["gemini-1", "gemini-2", "gemini-flash-1", "gemini-pro-1"]
        .iter()
        .any(|known| model.starts_with(known))
}

pub(super) fn translate(chat: &ChatRequest, context: &mut Context<'_>) -> Option<ThinkingConfig> {
    let reasoning = &chat.reasoning;
    let is_off = reasoning.effort == Some(ReasoningEffort::Off);
    let summary = reasoning.summary.as_deref();
    let is_hidden = match summary {
        // Google's default.
        None => is_off || context.client_speaks_it,
        Some(word) => is_off || matches!(word, "omitted" | "none"),
    };
    let (thinking_level, thinking_budget) = match (reasoning.budget_tokens, reasoning.effort) {
        (Some(budget), effort) if !is_off => {
            // The upstream takes one of the two, and the budget is more exact.
            context.ignored.add_if(effort.is_some(), "reasoning_effort");
            (None, Some(i64::from(budget)))
        }
        (_, Some(effort)) if is_before_3(&chat.model) => (None, Some(budget_of(effort))),
        (_, Some(effort)) => (Some(level_of(effort, &chat.model)), None),
        (_, None) if reasoning.adaptive == Some(true) => (None, Some(DYNAMIC)),
        (_, None) if reasoning.adaptive == Some(false) => (None, Some(0)),
        (_, None) => (None, None),
    };
    let own = context.client_speaks_it;
    let thinking_budget = thinking_budget.map(|tokens| {
        // A client of this dialect knows the ranges.
        if own {
            return tokens;
        }
        let fitted = budget_within(tokens, &chat.model);
        // A model that always reasons does so with its smallest budget.
        context
            .ignored
            .add_if(tokens == 0 && fitted != 0, "reasoning_effort");
        fitted
    });
    let is_requested = thinking_level.is_some() || thinking_budget.is_some() || summary.is_some();
    is_requested.then_some(ThinkingConfig {
        thinking_level,
        thinking_budget,
        include_thoughts: (!is_hidden && thinking_budget != Some(0)).then_some(true),
    })
}

/// Returns the budget within the range of a model's family: "The model does not support setting thinking_budget to 0", "Please choose
/// a value between" (ai.google.dev/gemini-api/docs/thinking).
fn budget_within(tokens: i64, model: &str) -> i64 {
    let (least, most, can_be_off) = match model {
        _ if tokens == DYNAMIC => return tokens,
        model if model.contains("flash-lite") => (512, 24_576, true),
        model if model.contains("flash") => (1, 24_576, true),
        model if model.contains("pro") => (128, 32_768, false),
        _ => return tokens,
    };
    match tokens {
        0 if can_be_off => 0,
        tokens => tokens.clamp(least, most),
    }
}

/// Maps an effort. `None` becomes the minimum of these models.
fn level_of(effort: ReasoningEffort, model: &str) -> &'static str {
    match effort {
        // "Thinking level is not supported for this model."
        ReasoningEffort::Off | ReasoningEffort::Minimal if model.contains("pro") => "low",
        ReasoningEffort::Off | ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High | ReasoningEffort::Highest => "high",
    }
}

/// Maps an effort to the upstream's own figures in its OpenAI-compatible API.
fn budget_of(effort: ReasoningEffort) -> i64 {
    match effort {
        ReasoningEffort::Off => 0,
        ReasoningEffort::Minimal | ReasoningEffort::Low => 1024,
        ReasoningEffort::Medium => 8192,
        ReasoningEffort::High | ReasoningEffort::Highest => 24_576,
    }
}
