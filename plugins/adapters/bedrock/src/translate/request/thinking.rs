//! The request for reasoning, in the form of Claude's own field. Models of other vendors have other fields, and no option.

use serde::Serialize;
use weir_sdk::adapter::Failure;
use weir_sdk::chat::{ChatRequest, ReasoningEffort};
use weir_sdk::wire::refuse;

use super::Context;
use crate::translate::options;

/// Minimum budget, in tokens.
const MIN_BUDGET_TOKENS: u32 = 1024;

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
) -> Result<(Option<ModelFields>, Option<&'static str>), Failure> {
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
    Ok(match context.options.thinking {
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
            reasoning.effort.and_then(effort_name),
        ),
        options::Thinking::Budget => {
            let budget = match reasoning.budget_tokens {
                Some(tokens) => tokens,
                None => budget_of(reasoning.effort, chat.max_output_tokens)?,
            };
            (fields("enabled", Some(budget)), None)
        }
    })
}

fn effort_name(effort: ReasoningEffort) -> Option<&'static str> {
    Some(match effort {
        ReasoningEffort::Off => return None,
        ReasoningEffort::Minimal | ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Highest => "max",
    })
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
