//! The upstream's token counts. An invalid count is ignored: the host then estimates, and the response stands.

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::Event;
use weir_sdk::chat::Usage;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireUsage<'a> {
    #[serde(borrow)]
    input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_read_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_write_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_details: Option<&'a RawValue>,
}

/// Tokens that were written to the cache for this time.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CacheWrite<'a> {
    ttl: Option<String>,
    #[serde(borrow)]
    input_tokens: Option<&'a RawValue>,
}

/// Emits the counts of a `usage` object.
pub(super) fn push(raw: Option<&RawValue>, events: &mut Vec<Event>) {
    let wire_usage = raw.and_then(|raw| serde_json::from_str::<WireUsage<'_>>(raw.get()).ok());
    let Some(wire_usage) = wire_usage else { return };
    let (cache_read, cache_write) = (
        count(wire_usage.cache_read_input_tokens),
        count(wire_usage.cache_write_input_tokens),
    );
    let details = wire_usage
        .cache_details
        .and_then(|raw| serde_json::from_str::<Vec<CacheWrite<'_>>>(raw.get()).ok());
    let long = details
        .into_iter()
        .flatten()
        .filter(|write| write.ttl.as_deref() == Some("1h"))
        .filter_map(|write| count(write.input_tokens))
        .reduce(u64::saturating_add);
    // The upstream counts cached tokens beside the others.
    let input = count(wire_usage.input_tokens).map(|input| {
        input
            .saturating_add(cache_read.unwrap_or_default())
            .saturating_add(cache_write.unwrap_or_default())
    });
    let usage = Usage {
        input_tokens: input,
        cache_read_tokens: cache_read,
        cache_write_short_tokens: cache_write
            .map(|all| all.saturating_sub(long.unwrap_or_default())),
        cache_write_long_tokens: long,
        output_tokens: count(wire_usage.output_tokens),
        reasoning_tokens: None,
        images: None,
        other: Vec::new(),
    };
    if usage.input_tokens.is_some() || usage.output_tokens.is_some() {
        events.push(Event::Usage(usage));
    }
}

/// Parses a number that can be a count: not negative, fractional or huge, and not a text.
fn count(raw: Option<&RawValue>) -> Option<u64> {
    raw?.get().parse().ok()
}
