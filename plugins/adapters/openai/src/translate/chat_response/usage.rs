//! The upstream's token counts. An invalid count is ignored: the host then estimates, and the response stands.

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_sdk::chat::Usage;
use weir_sdk::response::named_counts;

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
pub(in crate::translate) fn read(raw: &RawValue) -> Option<Usage> {
    let usage: WireUsage<'_> = serde_json::from_str(raw.get()).ok()?;
    let input = TokenDetails::read(usage.prompt_tokens_details.or(usage.input_tokens_details));
    let output = TokenDetails::read(
        usage
            .completion_tokens_details
            .or(usage.output_tokens_details),
    );
    let mut input_tokens = count(usage.prompt_tokens).or_else(|| count(usage.input_tokens));
    let mut output_tokens = count(usage.completion_tokens).or_else(|| count(usage.output_tokens));
    let reasoning_tokens = count(output.reasoning_tokens).or_else(|| count(usage.reasoning_tokens));
    // OpenAI's two counts include all others. If a server counts some separately, only the total shows it.
    if let (Some(within_input), Some(within_output)) = (input_tokens, output_tokens) {
        let known = within_input.checked_add(within_output);
        let uncounted = count(usage.total_tokens).zip(known);
        let uncounted = uncounted.and_then(|(total, known)| total.checked_sub(known));
        let audio_tokens = count(input.audio_tokens).filter(|tokens| *tokens > 0);
        match uncounted.filter(|tokens| *tokens > 0) {
            Some(tokens) if audio_tokens == Some(tokens) => {
                // Mistral's audio input.
                input_tokens = within_input.checked_add(tokens);
            }
            // xAI's reasoning, and Gemini's, which has no field.
            Some(tokens)
                if reasoning_tokens
                    .is_none_or(|reasoning| reasoning == 0 || reasoning == tokens)
                    && audio_tokens.is_none() =>
            {
                output_tokens = within_output.checked_add(tokens);
            }
            _ => {}
        }
    }
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
    let cache_write =
        count(input.cache_write_tokens).or_else(|| count(input.cache_creation_tokens));
    let cache_write_long = input.cache_write_tokens_details.and_then(|raw| {
        let by_lifetime: CacheWriteDetails<'_> = serde_json::from_str(raw.get()).ok()?;
        count(by_lifetime.ttl_12h_tokens)
    });
    Some(Usage {
        input_tokens,
        cache_read_tokens: count(input.cached_tokens)
            .or_else(|| count(usage.prompt_cache_hit_tokens))
            .or_else(|| count(usage.cached_tokens))
            .or_else(|| count(usage.num_cached_tokens)),
        // Without a lifetime, the shorter one: OpenAI caches for minutes unless the request asks otherwise.
        cache_write_short_tokens: cache_write
            .map(|all| all.saturating_sub(cache_write_long.unwrap_or(0))),
        cache_write_long_tokens: cache_write_long,
        output_tokens,
        reasoning_tokens,
        other: named_counts(other.map(|(name, raw)| (name, count(raw)))),
        ..NONE
    })
}

/// Returns the `usage` in Groq's own field, which its streams had before OpenAI's had any.
pub(super) fn from_groq(raw: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct XGroq<'a> {
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    serde_json::from_str::<XGroq<'_>>(raw.get()).ok()?.usage
}

/// Returns the known counts, replaced by newer ones.
pub(super) fn merged(known: &Usage, newer: Usage) -> Usage {
    let mut other = newer.other;
    for count in &known.other {
        if !other.iter().any(|one| one.name == count.name) {
            other.push(count.clone());
        }
    }
    Usage {
        input_tokens: newer.input_tokens.or(known.input_tokens),
        cache_read_tokens: newer.cache_read_tokens.or(known.cache_read_tokens),
        cache_write_short_tokens: newer
            .cache_write_short_tokens
            .or(known.cache_write_short_tokens),
        cache_write_long_tokens: newer
            .cache_write_long_tokens
            .or(known.cache_write_long_tokens),
        output_tokens: newer.output_tokens.or(known.output_tokens),
        reasoning_tokens: newer.reasoning_tokens.or(known.reasoning_tokens),
        other,
        ..NONE
    }
}

/// Parses a number that can be a count: not negative, fractional or huge, and not a text.
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
    /// The names in OpenAI's newer API, and in some servers of this one.
    #[serde(borrow)]
    input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    input_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    output_tokens_details: Option<&'a RawValue>,
    /// Outside the details in some servers.
    #[serde(borrow)]
    reasoning_tokens: Option<&'a RawValue>,
    /// DeepSeek's field.
    #[serde(borrow)]
    prompt_cache_hit_tokens: Option<&'a RawValue>,
    /// Moonshot's field.
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
    /// Mistral's field.
    #[serde(borrow)]
    num_cached_tokens: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct TokenDetails<'a> {
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_write_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_write_tokens_details: Option<&'a RawValue>,
    /// LiteLLM's name.
    #[serde(borrow)]
    cache_creation_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    audio_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    accepted_prediction_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    rejected_prediction_tokens: Option<&'a RawValue>,
}

/// The written tokens by lifetime.
#[derive(Deserialize)]
struct CacheWriteDetails<'a> {
    #[serde(borrow)]
    ttl_12h_tokens: Option<&'a RawValue>,
}

impl<'a> TokenDetails<'a> {
    fn read(raw: Option<&'a RawValue>) -> Self {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default()
    }
}
