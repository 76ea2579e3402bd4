//! The word for a requested effort of reasoning.

use weir_sdk::chat::{ReasoningEffort, ReasoningRequest};
use weir_sdk::options::names;

/// The words of this dialect, from the least effort to the greatest.
pub(super) const WORDS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// The value of the option `efforts` for a model that does not reason.
pub(super) const OFF: &str = "off";

/// Returns whether the client requests reasoning from a model that has none.
pub(super) fn is_in_vain(reasoning: &ReasoningRequest, supported: &str) -> bool {
    let is_off = reasoning.effort == Some(ReasoningEffort::Off);
    let is_asked = reasoning.effort.is_some() || reasoning.budget_tokens.is_some();
    supported == OFF && is_asked && !is_off
}

/// Returns the word for the requested effort: among the `supported` words, the next greater one, or else the greatest.
///
/// This dialect has no budget of tokens: a budget without an effort is mapped to one.
pub(super) fn word(reasoning: &ReasoningRequest, supported: &str) -> Option<&'static str> {
    if supported == OFF {
        return None;
    }
    let meant = reasoning.budget_tokens.map(|tokens| match tokens {
        0..2048 => ReasoningEffort::Low,
        2048..8192 => ReasoningEffort::Medium,
        8192.. => ReasoningEffort::High,
    });
    let word = match reasoning.effort.or(meant)? {
        ReasoningEffort::Off => "none",
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Highest => "xhigh",
    };
    let is_supported = |word: &&str| names(supported).any(|name| name == *word);
    let mut supported = WORDS.into_iter().filter(is_supported);
    let at_least = WORDS.iter().position(|known| *known == word)?;
    let greater = WORDS.into_iter().skip(at_least).find(is_supported);
    greater.or_else(|| supported.next_back()).or(Some(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsupported_effort_becomes_the_nearest_one() {
        let asked = |effort| ReasoningRequest {
            effort: Some(effort),
            budget_tokens: None,
            summary: None,
            adaptive: None,
        };
        for (effort, supported, expected) in [
            (ReasoningEffort::Off, "none,low", "none"),
            (ReasoningEffort::Off, "", "none"),
            (ReasoningEffort::Off, "minimal,low,medium,high", "minimal"),
            (ReasoningEffort::Off, "none, low", "none"),
            (ReasoningEffort::Minimal, "none,low,medium", "low"),
            (ReasoningEffort::Highest, "low,medium,high", "high"),
            (ReasoningEffort::Highest, "high,max", "max"),
            (ReasoningEffort::Highest, "", "xhigh"),
            (ReasoningEffort::Low, "high", "high"),
        ] {
            assert_eq!(
                word(&asked(effort), supported),
                Some(expected),
                "{effort:?} of {supported}"
            );
        }
        assert_eq!(word(&asked(ReasoningEffort::Off), OFF), None);
        assert!(!is_in_vain(&asked(ReasoningEffort::Off), OFF));
        assert_eq!(word(&asked(ReasoningEffort::High), OFF), None);
        assert!(is_in_vain(&asked(ReasoningEffort::High), OFF));
    }
}
