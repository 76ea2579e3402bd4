//! What an upstream says that it counted. Nonsense is as good as nothing: the host then estimates,
//! and the answer stands.

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_sdk::chat::{NamedCount, Usage};

pub(super) const NONE: Usage = Usage {
    input_tokens: None,
    cache_read_tokens: None,
    cache_write_short_tokens: None,
    cache_write_long_tokens: None,
    output_tokens: None,
    reasoning_tokens: None,
    images: None,
    other: Vec::new(),
};

/// Reads a `usage` object.
pub(super) fn read(raw: &RawValue) -> Option<Usage> {
    let usage: WireUsage<'_> = serde_json::from_str(raw.get()).ok()?;
    let input_tokens = count(usage.prompt_tokens);
    let visible_tokens = count(usage.completion_tokens);
    let input = Details::read(usage.prompt_tokens_details);
    let output = Details::read(usage.completion_tokens_details);
    let reasoning_tokens = count(output.reasoning_tokens);
    // xAI counts reasoning beside the completion, which shows in the total; OpenAI within it.
    let beside = || {
        let sum = visible_tokens?.checked_add(reasoning_tokens.filter(|tokens| *tokens > 0)?)?;
        (count(usage.total_tokens)? == input_tokens?.checked_add(sum)?).then_some(sum)
    };
    let other = [
        ("audio-input-tokens", input.audio_tokens),
        ("audio-output-tokens", output.audio_tokens),
        (
            "accepted-prediction-tokens",
            output.accepted_prediction_tokens,
        ),
        (
            "rejected-prediction-tokens",
            output.rejected_prediction_tokens,
        ),
    ];
    Some(Usage {
        input_tokens,
        cache_read_tokens: count(input.cached_tokens)
            .or_else(|| count(usage.prompt_cache_hit_tokens))
            .or_else(|| count(usage.num_cached_tokens)),
        // None says for how long; OpenAI's are kept for minutes unless asked otherwise.
        cache_write_short_tokens: count(input.cache_write_tokens),
        output_tokens: beside().or(visible_tokens),
        reasoning_tokens,
        other: other
            .into_iter()
            .filter_map(|(name, raw)| Some((name, count(raw).filter(|count| *count > 0)?)))
            .map(|(name, count)| NamedCount {
                name: name.to_owned(),
                count,
            })
            .collect(),
        ..NONE
    })
}

/// The `usage` in Groq's own field, which its streams had before OpenAI's had any.
pub(super) fn of_groq(raw: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct XGroq<'a> {
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    serde_json::from_str::<XGroq<'_>>(raw.get()).ok()?.usage
}

/// What was known, with what is said now in place of the same.
pub(super) fn merged(known: &Usage, read: Usage) -> Usage {
    let mut other = read.other;
    for count in &known.other {
        if !other.iter().any(|newer| newer.name == count.name) {
            other.push(count.clone());
        }
    }
    Usage {
        input_tokens: read.input_tokens.or(known.input_tokens),
        cache_read_tokens: read.cache_read_tokens.or(known.cache_read_tokens),
        cache_write_short_tokens: read
            .cache_write_short_tokens
            .or(known.cache_write_short_tokens),
        output_tokens: read.output_tokens.or(known.output_tokens),
        reasoning_tokens: read.reasoning_tokens.or(known.reasoning_tokens),
        other,
        ..NONE
    }
}

/// A number that can be a count: negative, broken and huge ones, and texts, are not.
fn count(raw: Option<&RawValue>) -> Option<u64> {
    raw?.get().parse().ok()
}

#[derive(Deserialize)]
struct WireUsage<'a> {
    #[serde(borrow)]
    prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    total_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens_details: Option<&'a RawValue>,
    /// DeepSeek's.
    #[serde(borrow)]
    prompt_cache_hit_tokens: Option<&'a RawValue>,
    /// Mistral's.
    #[serde(borrow)]
    num_cached_tokens: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_write_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    audio_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    accepted_prediction_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    rejected_prediction_tokens: Option<&'a RawValue>,
}

impl<'a> Details<'a> {
    fn read(raw: Option<&'a RawValue>) -> Self {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default()
    }
}
