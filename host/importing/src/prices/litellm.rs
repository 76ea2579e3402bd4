//! LiteLLM's price file: entries by name, with `litellm_provider`, and prices in USD per token.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;
use weir_catalog::config::{AboveConfig, PriceConfig};
use weir_catalog::end_date::EndDate;

use super::offer::{Fields, Offer, OfferContent, OfferTerms, field, price, required};

/// A price per token is a millionth of a price per million tokens.
const PER_TOKEN: i64 = 6;

/// The fields of prices, which may end in the threshold of a long-context price.
const PRICES: [&str; 8] = [
    "input_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
    "cache_creation_input_token_cost_above_1hr",
    "cache_creation_input_token_cost_above_12hr",
    "output_cost_per_token",
    "input_cost_per_audio_token",
    "output_cost_per_audio_token",
];

/// The price of reasoning, which weir has as that of other output.
const REASONING: &str = "output_cost_per_reasoning_token";

fn fields(raw: &RawValue) -> Option<Fields<'_>> {
    serde_json::from_str(raw.get()).ok()
}

fn vendor(fields: &Fields<'_>) -> Option<String> {
    field(fields, "litellm_provider").ok().flatten()
}

pub(super) fn is_format(entries: &BTreeMap<String, &RawValue>) -> bool {
    let mut entries = entries.values();
    entries.any(|raw| fields(raw).is_some_and(|fields| fields.contains_key("litellm_provider")))
}

/// Returns the offers of all entries with a provider.
pub(super) fn offers(entries: &BTreeMap<String, &RawValue>) -> Vec<Offer> {
    let offer = |(entry, raw): (&String, &&RawValue)| {
        let fields = fields(raw)?;
        let vendor = vendor(&fields)?;
        // `ft:` entries are prices of all fine-tuned models, and `sample_spec` explains the format.
        if entry.starts_with("ft:") || entry == "sample_spec" {
            return None;
        }
        let prefix = format!("{vendor}/");
        let model = entry.strip_prefix(&prefix).unwrap_or(entry).to_owned();
        let content = match terms(&fields) {
            Ok(Some(terms)) => OfferContent::Chat(Box::new(terms)),
            Ok(None) => OfferContent::Other,
            Err(why) => OfferContent::Unusable(why),
        };
        Some(Offer {
            entry: entry.clone(),
            vendor,
            model,
            content,
        })
    };
    entries.iter().filter_map(offer).collect()
}

/// Returns the terms of a chat model; `None` for another kind.
fn terms(fields: &Fields<'_>) -> Result<Option<OfferTerms>, String> {
    if field::<String>(fields, "mode")?.as_deref() != Some("chat") {
        return Ok(None);
    }
    let price = full_price(fields)?;
    let input: u32 = required(fields, "max_input_tokens")?;
    let output: u32 = required(fields, "max_output_tokens")?;
    let ends_on = field::<String>(fields, "deprecation_date")?;
    Ok(Some(OfferTerms {
        name: None,
        price,
        least_window: input,
        most_window: input.saturating_add(output),
        max_output_tokens: output,
        supports_tools: field(fields, "supports_function_calling")?.unwrap_or(false),
        supports_vision: field(fields, "supports_vision")?.unwrap_or(false),
        ends_on: ends_on.as_deref().and_then(EndDate::parse),
    }))
}

/// Returns the price that fields of a deployment give, with the numbers as written. A missing part is not set.
///
/// # Errors
///
/// The field and its error.
pub fn price_of(written: &BTreeMap<String, String>) -> Result<PriceConfig, String> {
    let quoted = written.iter().map(|(name, text)| {
        let raw = serde_json::value::to_raw_value(text).map_err(|error| error.to_string())?;
        Ok((name.clone(), raw))
    });
    let quoted: BTreeMap<String, Box<RawValue>> = quoted.collect::<Result<_, String>>()?;
    let fields = quoted.iter().map(|(name, raw)| (name.clone(), &**raw));
    full_price(&fields.collect())
}

/// Returns whether a field is part of a price that weir reads.
pub fn is_price(field: &str) -> bool {
    let base = match field.rsplit_once("_above_") {
        Some((base, end)) if end.ends_with("k_tokens") => base,
        _ => field,
    };
    PRICES.contains(&base) || field == REASONING
}

/// Returns the price with that of long inputs.
fn full_price(fields: &Fields<'_>) -> Result<PriceConfig, String> {
    let base = prices(fields, "")?;
    let reasoning = price(fields, REASONING, PER_TOKEN)?;
    if reasoning.is_some() && reasoning != base.output {
        return Err(
            "`output_cost_per_reasoning_token` differs from `output_cost_per_token`".to_owned(),
        );
    }
    let thresholds: BTreeSet<_> = fields.keys().filter_map(|name| threshold(name)).collect();
    let mut thresholds = thresholds.into_iter();
    let above = match (thresholds.next(), thresholds.next()) {
        (None, _) => None,
        (Some(thousands), None) => Some(Box::new(AboveConfig {
            input_tokens: thousands * 1_000,
            price: prices(fields, &format!("_above_{thousands}k_tokens"))?,
        })),
        (Some(_), Some(_)) => return Err("it has more than one long-context price".to_owned()),
    };
    Ok(PriceConfig { above, ..base })
}

/// Returns the thousands of tokens in the name of a long-context price.
fn threshold(name: &str) -> Option<u64> {
    let names = [
        "input_cost_per_token_above_",
        "output_cost_per_token_above_",
    ];
    let rest = names.iter().find_map(|start| name.strip_prefix(start))?;
    rest.strip_suffix("k_tokens")?.parse().ok()
}

/// Returns the prices whose names have this suffix.
fn prices(fields: &Fields<'_>, suffix: &str) -> Result<PriceConfig, String> {
    let of = |name: &str| price(fields, &format!("{name}{suffix}"), PER_TOKEN);
    // Anthropic caches for an hour, and OpenAI for more than 12.
    let long = of("cache_creation_input_token_cost_above_1hr")?;
    Ok(PriceConfig {
        input: of("input_cost_per_token")?,
        cache_read: of("cache_read_input_token_cost")?,
        cache_write_short: of("cache_creation_input_token_cost")?,
        cache_write_long: match long {
            None => of("cache_creation_input_token_cost_above_12hr")?,
            long => long,
        },
        output: of("output_cost_per_token")?,
        audio_input: of("input_cost_per_audio_token")?,
        audio_output: of("output_cost_per_audio_token")?,
        ..PriceConfig::default()
    })
}
