//! The request for reasoning.
//!
//! Newer models decide on the amount themselves, guided by an effort; older models take a budget of tokens; some do not
//! reason at all. The operator's option for the model tells them apart: a request in another form is translated.

use serde::Serialize;
use weir_sdk::adapter::Failure;
use weir_sdk::chat::{ChatRequest, Content, Message, ReasoningEffort, Role};
use weir_sdk::wire::refuse;

use super::Context;
use crate::translate::options::{self, Options};

/// Minimum budget, in tokens.
const MIN_BUDGET_TOKENS: u32 = 1024;

#[derive(Serialize)]
pub(super) struct Thinking {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    display: Option<&'static str>,
}

/// The form of reasoning that the client requests.
enum ReasoningMode {
    Unspecified,
    Off,
    Budget(u32),
    Adaptive,
    /// An effort alone, in a dialect where it requests reasoning.
    Effort,
}

/// Returns the request for reasoning, and the effort.
pub(super) fn translate(
    chat: &ChatRequest,
    options: &Options<'_>,
    context: &mut Context<'_>,
) -> Result<(Option<Thinking>, Option<&'static str>), Failure> {
    let reasoning = &chat.reasoning;
    let display = reasoning.summary.as_deref().map(|summary| match summary {
        "omitted" | "none" => "omitted",
        _ => "summarized",
    });
    let thinking = |kind, budget_tokens| {
        Some(Thinking {
            kind,
            budget_tokens,
            display,
        })
    };
    let off = || {
        Some(Thinking {
            kind: "disabled",
            budget_tokens: None,
            display: None,
        })
    };
    let effort = reasoning.effort.and_then(effort_name);
    let budget = || budget_of(reasoning.effort, chat.max_output_tokens);
    let (mut thinking, effort) = match (requested_mode(chat, context), options.thinking) {
        (ReasoningMode::Unspecified, options::Thinking::Auto | options::Thinking::Adaptive) => {
            (None, effort)
        }
        (ReasoningMode::Unspecified, _) => {
            context.ignored.add_if(effort.is_some(), "reasoning_effort");
            (None, None)
        }
        (ReasoningMode::Off, options::Thinking::None) => (None, None),
        (ReasoningMode::Off, options::Thinking::Budget) => (off(), None),
        (ReasoningMode::Off, _) => (off(), effort),
        (_, options::Thinking::None) => {
            context.ignored.add("reasoning");
            (None, None)
        }
        (ReasoningMode::Budget(tokens), options::Thinking::Auto) => {
            (thinking("enabled", Some(tokens)), effort)
        }
        (ReasoningMode::Budget(tokens), options::Thinking::Budget) => {
            context.ignored.add_if(effort.is_some(), "reasoning_effort");
            (thinking("enabled", Some(tokens)), None)
        }
        (_, options::Thinking::Budget) => (thinking("enabled", Some(budget()?)), None),
        (_, options::Thinking::Auto | options::Thinking::Adaptive) => {
            (thinking("adaptive", None), effort)
        }
    };
    let has_budget = |thinking: &Thinking| thinking.budget_tokens.is_some();
    if thinking.as_ref().is_some_and(has_budget) && has_unsigned_calls(chat) {
        context.ignored.add("reasoning");
        thinking = None;
    }
    let is_shown = thinking
        .as_ref()
        .is_some_and(|thinking| thinking.display.is_some());
    context
        .ignored
        .add_if(display.is_some() && !is_shown, "reasoning.summary");
    Ok((thinking, effort))
}

fn requested_mode(chat: &ChatRequest, context: &Context<'_>) -> ReasoningMode {
    let reasoning = &chat.reasoning;
    match (
        reasoning.effort,
        reasoning.budget_tokens,
        reasoning.adaptive,
    ) {
        (Some(ReasoningEffort::Off), ..) => ReasoningMode::Off,
        (_, Some(tokens), _) => ReasoningMode::Budget(tokens),
        (_, _, Some(true)) => ReasoningMode::Adaptive,
        (_, _, Some(false)) => ReasoningMode::Off,
        // In this dialect an effort alone requests no reasoning.
        (Some(_), None, None) if !context.client_speaks_it => ReasoningMode::Effort,
        (_, None, None) => ReasoningMode::Unspecified,
    }
}

/// Returns whether the conversation ends with results of calls whose turn has no signed reasoning. With a budget, the
/// upstream refuses such a turn, also if the user says something with the results. Adjacent messages of one role are
/// one turn.
fn has_unsigned_calls(chat: &ChatRequest) -> bool {
    let of_user = |message: &&Message| message.role != Role::Assistant;
    let last_turn = chat.messages.iter().rev().take_while(of_user);
    let has_results = last_turn.clone().any(|message| message.role == Role::Tool);
    let before = chat.messages.iter().rev().skip_while(of_user);
    let mut last_calls = before.take_while(|message| message.role == Role::Assistant);
    let is_signed = |message: &Message| {
        message.parts.iter().any(|part| match &part.content {
            Content::Reasoning(reasoning) => part.signature.is_some() || reasoning.sealed.is_some(),
            _ => false,
        })
    };
    has_results && !last_calls.any(is_signed)
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
