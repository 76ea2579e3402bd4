//! The request for reasoning, in the form of Claude's own field. Models of other vendors have other fields, and no option.

use serde::Serialize;
use weir_sdk::chat::{ChatRequest, ReasoningEffort};
use weir_sdk::fit::claude;

use super::Context;
use crate::translate::options;

/// The fields of the model itself.
#[derive(Serialize)]
pub(super) struct ModelFields {
    thinking: Thinking,
}

#[derive(Serialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_tokens: Option<u32>,
}

/// Returns the request for reasoning, and the effort.
pub(super) fn translate(
    chat: &ChatRequest,
    context: &mut Context<'_>,
) -> (Option<ModelFields>, Option<&'static str>) {
    let reasoning = &chat.reasoning;
    context
        .ignored
        .add_if(reasoning.summary.is_some(), "reasoning.summary");
    let is_off =
        reasoning.effort == Some(ReasoningEffort::Off) || reasoning.adaptive == Some(false);
    let is_requested = reasoning.effort.is_some()
        || reasoning.budget_tokens.is_some()
        || reasoning.adaptive == Some(true);
    let fields = |kind, budget_tokens| {
        Some(ModelFields {
            thinking: Thinking {
                kind,
                budget_tokens,
            },
        })
    };
    let limit = chat.max_output_tokens;
    let (thinking, effort) = match context.options.thinking {
        _ if !is_off && !is_requested => (None, None),
        options::Thinking::None => {
            for (is_named, name) in [
                (reasoning.effort.is_some(), "reasoning_effort"),
                (reasoning.budget_tokens.is_some(), "reasoning.budget_tokens"),
                (reasoning.adaptive.is_some(), "reasoning.adaptive"),
            ] {
                context.ignored.add_if(is_named && !is_off, name);
            }
            (None, None)
        }
        _ if is_off => (fields("disabled", None), None),
        options::Thinking::Adaptive => (
            fields("adaptive", None),
            reasoning.effort.and_then(claude::effort_name),
        ),
        options::Thinking::Budget => {
            let budget = reasoning
                .budget_tokens
                .unwrap_or_else(|| claude::budget_of(reasoning.effort, limit));
            // Without room for a budget, and behind calls that no reasoning explains, the model does not reason.
            let budget = claude::budget_within(budget, limit);
            let budget = budget.filter(|_| !claude::has_unsigned_calls(chat));
            (
                budget.and_then(|budget| fields("enabled", Some(budget))),
                None,
            )
        }
    };
    // A call that must be made wins over reasoning.
    let thinking = thinking.filter(|fields| !fields.is_on() || !claude::forces_call(chat));
    let is_dropped = context.options.thinking != options::Thinking::None
        && is_requested
        && !is_off
        && thinking.is_none();
    context.ignored.add_if(is_dropped, "reasoning");
    (thinking, effort)
}

impl ModelFields {
    pub(super) fn is_on(&self) -> bool {
        self.thinking.kind != "disabled"
    }
}
