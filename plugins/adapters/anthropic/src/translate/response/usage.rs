//! The upstream's token counts. An invalid count is ignored: the host then estimates, and the response stands.
//!
//! Counts in a stream are totals so far: a later one replaces an earlier one. If the upstream first summarized the
//! conversation, it lists that pass in `iterations` alone, though it bills it, too.

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::Event;
use weir_sdk::chat::Usage;
use weir_sdk::response::named_counts;

#[derive(Debug, Default)]
pub(super) struct UsageTracker {
    counts: UsageCounts,
    emitted: Option<Usage>,
}

#[derive(Clone, Debug, Default)]
struct UsageCounts {
    pass: PassTokens,
    iterations: Vec<(String, PassTokens)>,
    thinking_tokens: Option<u64>,
    web_searches: Option<u64>,
    web_fetches: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PassTokens {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    cache_write_long: Option<u64>,
    output: Option<u64>,
}

#[derive(Default, Deserialize)]
struct WireUsage<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_read_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_creation_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_creation: Option<&'a RawValue>,
    #[serde(borrow)]
    output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    output_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    server_tool_use: Option<&'a RawValue>,
    #[serde(borrow)]
    iterations: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct UsageDetails<'a> {
    #[serde(borrow)]
    ephemeral_1h_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    ephemeral_5m_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    web_search_requests: Option<&'a RawValue>,
    #[serde(borrow)]
    web_fetch_requests: Option<&'a RawValue>,
}

impl UsageTracker {
    /// Adds the counts of a `usage` object, and emits the totals if they are new.
    pub(super) fn add(&mut self, raw: Option<&RawValue>, events: &mut Vec<Event>) {
        let Some(usage) = raw.and_then(|raw| serde_json::from_str::<WireUsage<'_>>(raw.get()).ok())
        else {
            return;
        };
        self.counts.add(&usage);
        let total = self.counts.total();
        if self.emitted.as_ref() != Some(&total) {
            events.push(Event::Usage(total.clone()));
            self.emitted = Some(total);
        }
    }
}

impl UsageCounts {
    fn add(&mut self, usage: &WireUsage<'_>) {
        self.pass.add(usage);
        let output = details(usage.output_tokens_details);
        let tools = details(usage.server_tool_use);
        replace(&mut self.thinking_tokens, output.thinking_tokens);
        replace(&mut self.web_searches, tools.web_search_requests);
        replace(&mut self.web_fetches, tools.web_fetch_requests);
        let iterations = usage
            .iterations
            .and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok());
        if let Some(iterations) = iterations {
            self.iterations = iterations
                .into_iter()
                .filter_map(|raw| serde_json::from_str::<WireUsage<'_>>(raw.get()).ok())
                .map(|usage| {
                    let mut pass = PassTokens::default();
                    pass.add(&usage);
                    let kind = usage
                        .kind
                        .and_then(|raw| serde_json::from_str(raw.get()).ok());
                    (kind.unwrap_or_default(), pass)
                })
                .collect();
        }
    }

    fn total(&self) -> Usage {
        let passes_of = |kinds: &[&str]| {
            let passes = self.iterations.iter();
            passes
                .filter(|(kind, _)| kinds.contains(&kind.as_str()))
                .map(|(_, pass)| *pass)
                .reduce(PassTokens::and)
        };
        let compacted = passes_of(&["compaction"]).and(passes_of(&["message", "compaction"]));
        let pass = compacted.unwrap_or(self.pass);
        // Tokens of another model, at another price.
        let advisor = passes_of(&["advisor_message"]).unwrap_or_default();
        let long = pass.cache_write_long;
        let other = [
            ("web-searches", self.web_searches),
            ("web-fetches", self.web_fetches),
            ("advisor-input-tokens", advisor.all_input()),
            ("advisor-output-tokens", advisor.output),
        ];
        Usage {
            input_tokens: pass.all_input(),
            cache_read_tokens: pass.cache_read,
            cache_write_short_tokens: pass
                .cache_write
                .map(|all| all.saturating_sub(long.unwrap_or_default())),
            cache_write_long_tokens: long,
            output_tokens: pass.output,
            reasoning_tokens: self.thinking_tokens,
            images: None,
            other: named_counts(other),
        }
    }
}

impl PassTokens {
    fn add(&mut self, usage: &WireUsage<'_>) {
        replace(&mut self.input, usage.input_tokens);
        replace(&mut self.cache_read, usage.cache_read_input_tokens);
        replace(&mut self.cache_write, usage.cache_creation_input_tokens);
        replace(&mut self.output, usage.output_tokens);
        let written = details(usage.cache_creation);
        let long = count(written.ephemeral_1h_input_tokens);
        let short = count(written.ephemeral_5m_input_tokens);
        if let Some(long) = long {
            self.cache_write_long = Some(long);
        }
        if self.cache_write.is_none() {
            self.cache_write = long.map_or(short, |long| long.checked_add(short.unwrap_or(0)));
        }
    }

    /// Returns all input tokens: the upstream counts cached ones separately.
    fn all_input(self) -> Option<u64> {
        let cached = plus(self.cache_read, self.cache_write);
        self.input.and(plus(self.input, cached))
    }

    fn and(self, other: Self) -> Self {
        Self {
            input: plus(self.input, other.input),
            cache_read: plus(self.cache_read, other.cache_read),
            cache_write: plus(self.cache_write, other.cache_write),
            cache_write_long: plus(self.cache_write_long, other.cache_write_long),
            output: plus(self.output, other.output),
        }
    }
}

fn plus(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}

fn replace(known: &mut Option<u64>, raw: Option<&RawValue>) {
    *known = count(raw).or(*known);
}

/// Parses a number that can be a count: not negative, fractional or huge, and not a text.
fn count(raw: Option<&RawValue>) -> Option<u64> {
    raw?.get().parse().ok()
}

fn details(raw: Option<&RawValue>) -> UsageDetails<'_> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}
