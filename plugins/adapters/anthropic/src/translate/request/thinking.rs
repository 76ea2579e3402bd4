//! The request for reasoning.
//!
//! Newer models decide on the amount themselves, guided by an effort; older models take a budget of tokens; some do not
//! reason at all. The operator's option for the model tells them apart: a request in another form is translated.

use serde::Serialize;
use weir_sdk::chat::{ChatRequest, ReasoningEffort};
use weir_sdk::fit::claude;

use super::Context;
use crate::translate::options::{self, Options};

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
) -> (Option<Thinking>, Option<&'static str>) {
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
    let effort = reasoning.effort.and_then(claude::effort_name);
    let limit = chat.max_output_tokens;
    let client_speaks_it = context.client_speaks_it;
    // Without room for a budget, the model does not reason. A client of this dialect knows the bounds.
    let enabled = |tokens| {
        let tokens = match client_speaks_it {
            true => tokens,
            false => claude::budget_within(tokens, limit)?,
        };
        thinking("enabled", Some(tokens))
    };
    let budget = || claude::budget_of(reasoning.effort, limit);
    let is_requested = !matches!(
        requested_mode(chat, context),
        ReasoningMode::Unspecified | ReasoningMode::Off
    );
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
        (ReasoningMode::Budget(tokens), options::Thinking::Auto) => (enabled(tokens), effort),
        (ReasoningMode::Budget(tokens), options::Thinking::Budget) => {
            context.ignored.add_if(effort.is_some(), "reasoning_effort");
            (enabled(tokens), None)
        }
        (_, options::Thinking::Budget) => (enabled(budget()), None),
        (_, options::Thinking::Auto | options::Thinking::Adaptive) => {
            (thinking("adaptive", None), effort)
        }
    };
    let has_budget = |thinking: &Thinking| thinking.budget_tokens.is_some();
    let is_on = thinking.as_ref().is_some_and(Thinking::is_on);
    // A call that must be made wins over reasoning.
    let is_refused = is_on && !client_speaks_it && claude::forces_call(chat)
        || thinking.as_ref().is_some_and(has_budget) && claude::has_unsigned_calls(chat);
    if is_refused {
        thinking = None;
    }
    let is_dropped =
        is_requested && options.thinking != options::Thinking::None && thinking.is_none();
    context.ignored.add_if(is_dropped, "reasoning");
    let is_shown = thinking
        .as_ref()
        .is_some_and(|thinking| thinking.display.is_some());
    context
        .ignored
        .add_if(display.is_some() && !is_shown, "reasoning.summary");
    (thinking, effort)
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

impl Thinking {
    pub(super) fn is_on(&self) -> bool {
        self.kind != "disabled"
    }
}
