//! The rules of Claude's models for sampling, reasoning and forced calls beside one another. Two adapters ask them.

use super::text_message;
use super::turns::CONTINUE;
use crate::chat::{ChatRequest, Content, Message, ReasoningEffort, Role, ToolChoice};
use crate::wire::Ignored;

/// The smallest budget of reasoning, in tokens.
pub const MIN_BUDGET_TOKENS: u32 = 1024;

/// With reasoning, a smaller `top_p` is refused.
const MIN_TOP_P_WITH_THINKING: f64 = 0.95;

/// A model of Claude, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaudeModel {
    is_opus: bool,
    /// Major and minor version; `None` if the name has none.
    version: Option<(u32, u32)>,
}

/// The sampling parameters of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sampling {
    /// `temperature`.
    pub temperature: Option<f64>,
    /// `top_p`.
    pub top_p: Option<f64>,
    /// `top_k`.
    pub top_k: Option<u32>,
}

impl ClaudeModel {
    /// Reads a name such as `claude-opus-4-7`, `us.anthropic.claude-3-5-sonnet-20241022-v2:0` or `claude-sonnet-4@20250514`.
    pub fn of(model: &str) -> Self {
        let name = model.split_once("claude-").map_or("", |(_, name)| name);
        let mut words = name.split(['-', '@', ':', '.']).peekable();
        let mut is_opus = false;
        let mut numbers = Vec::new();
        for word in &mut words {
            is_opus |= word == "opus";
            match word.parse() {
                // A longer number is a date.
                Ok(number) if word.len() <= 2 => numbers.push(number),
                Ok(_) => break,
                Err(_) if numbers.is_empty() => {}
                Err(_) => break,
            }
        }
        is_opus |= words.any(|word| word == "opus");
        let version = numbers.first().map(|major: &u32| {
            let minor = numbers.get(1).copied().unwrap_or_default();
            (*major, minor)
        });
        Self { is_opus, version }
    }

    fn is_since(self, version: (u32, u32)) -> bool {
        self.version.is_some_and(|own| own >= version)
    }

    /// Whether the model refuses `temperature` beside `top_p`: Opus 4.1, and all from 4.5 on.
    fn takes_one_of_two(self) -> bool {
        self.is_since((4, 5)) || self.is_opus && self.is_since((4, 1))
    }

    /// Whether the model refuses sampling: Opus from 4.7 on.
    fn is_without_sampling(self) -> bool {
        self.is_opus && self.is_since((4, 7))
    }

    /// Whether the model refuses to continue a turn of its own: all from 4.6 on.
    pub fn is_without_prefill(self) -> bool {
        self.is_since((4, 6))
    }
}

impl Sampling {
    /// Returns the parameters that the model takes beside reasoning, and names the others.
    #[must_use]
    pub fn fit(
        mut self,
        model: ClaudeModel,
        takes_sampling: bool,
        reasons: bool,
        ignored: &mut Ignored,
    ) -> Self {
        let takes_sampling = takes_sampling && !model.is_without_sampling();
        let mut drop_unless = |fits: bool, name: &str, is_default: bool| {
            // A default has no effect.
            ignored.add_if(!fits && !is_default, name);
            fits
        };
        self.temperature = self.temperature.filter(|temperature| {
            let is_default = *temperature == 1.0;
            drop_unless(
                takes_sampling && (!reasons || is_default),
                "temperature",
                is_default,
            )
        });
        self.top_p = self.top_p.filter(|top_p| {
            let is_alone = self.temperature.is_none() || !model.takes_one_of_two();
            let fits = !reasons || *top_p >= MIN_TOP_P_WITH_THINKING;
            drop_unless(takes_sampling && is_alone && fits, "top_p", *top_p == 1.0)
        });
        self.top_k = self
            .top_k
            .filter(|_| drop_unless(takes_sampling && !reasons, "top_k", false));
        self
    }
}

/// Whether the request forces a call, which these models refuse beside reasoning.
pub fn forces_call(chat: &ChatRequest) -> bool {
    match &chat.tool_choice {
        ToolChoice::Required | ToolChoice::Named(_) => true,
        ToolChoice::Among(allowed) => allowed.required,
        ToolChoice::Auto | ToolChoice::None => false,
    }
}

/// Returns the budget of reasoning within the output limit; `None` if the limit has no room for one.
pub fn budget_within(tokens: u32, limit_tokens: u32) -> Option<u32> {
    let most = limit_tokens.saturating_sub(1);
    (most >= MIN_BUDGET_TOKENS).then(|| tokens.clamp(MIN_BUDGET_TOKENS, most))
}

/// Returns a share of the output limit, which includes the reasoning, as its budget.
pub fn budget_of(effort: Option<ReasoningEffort>, limit_tokens: u32) -> u32 {
    let percent = match effort {
        Some(ReasoningEffort::Minimal) => 10,
        Some(ReasoningEffort::Low) => 20,
        Some(ReasoningEffort::High) => 80,
        Some(ReasoningEffort::Highest) => 95,
        _ => 50,
    };
    let budget = u64::from(limit_tokens) * percent / 100;
    u32::try_from(budget).unwrap_or(u32::MAX)
}

/// Returns Claude's word for an effort.
pub fn effort_name(effort: ReasoningEffort) -> Option<&'static str> {
    Some(match effort {
        ReasoningEffort::Off => return None,
        ReasoningEffort::Minimal | ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Highest => "max",
    })
}

/// Returns whether the conversation ends with results of calls whose turn has no signed reasoning. With a budget, the
/// provider refuses such a turn, also if the user says something with the results. Adjacent messages of one role are
/// one turn.
pub fn has_unsigned_calls(chat: &ChatRequest) -> bool {
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

/// Lets the user speak last, for a model that continues no turn of its own.
pub fn end_with_user(chat: &mut ChatRequest) {
    let last = chat.messages.last();
    let last = last.filter(|message| message.role == Role::Assistant);
    let last = last.and_then(|message| message.parts.last());
    if last.is_some_and(|part| matches!(part.content, Content::Text(_))) {
        chat.messages.push(text_message(Role::User, CONTINUE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_versions() {
        for (name, version, is_opus) in [
            ("claude-opus-4-7", Some((4, 7)), true),
            ("claude-sonnet-4-5-20250929", Some((4, 5)), false),
            (
                "us.anthropic.claude-3-5-sonnet-20241022-v2:0",
                Some((3, 5)),
                false,
            ),
            ("claude-3-opus-20240229", Some((3, 0)), true),
            ("claude-sonnet-4@20250514", Some((4, 0)), false),
            (
                "anthropic.claude-opus-4-1-20250805-v1:0",
                Some((4, 1)),
                true,
            ),
            ("claude-fable", None, false),
            ("scripted", None, false),
        ] {
            let model = ClaudeModel::of(name);
            assert_eq!((model.version, model.is_opus), (version, is_opus), "{name}");
        }
    }

    #[test]
    fn newer_models_take_one_of_two() {
        let both = Sampling {
            temperature: Some(0.5),
            top_p: Some(0.9),
            top_k: None,
        };
        for (name, top_p) in [
            ("claude-sonnet-4-20250514", Some(0.9)),
            ("claude-opus-4-1", None),
            ("claude-haiku-4-5", None),
        ] {
            let mut ignored = Ignored::default();
            let fitted = both.fit(ClaudeModel::of(name), true, false, &mut ignored);
            assert_eq!(
                (fitted.temperature, fitted.top_p),
                (Some(0.5), top_p),
                "{name}"
            );
            let named = top_p.is_none().then_some("top_p".to_owned());
            assert_eq!(ignored.into_names(), Vec::from_iter(named), "{name}");
        }
    }

    #[test]
    fn reasoning_wins_over_sampling() {
        let all = Sampling {
            temperature: Some(0.5),
            top_p: Some(0.96),
            top_k: Some(4),
        };
        let mut ignored = Ignored::default();
        let fitted = all.fit(
            ClaudeModel::of("claude-sonnet-4-5"),
            true,
            true,
            &mut ignored,
        );
        let expected = Sampling {
            top_p: Some(0.96),
            ..Sampling::default()
        };
        assert_eq!(fitted, expected);
        assert_eq!(ignored.into_names(), ["temperature", "top_k"]);
    }

    #[test]
    fn budgets_stay_below_the_limit() {
        assert_eq!(budget_within(100, 4_096), Some(1_024));
        assert_eq!(budget_within(5_000, 4_096), Some(4_095));
        assert_eq!(budget_within(2_000, 1_024), None);
    }
}
