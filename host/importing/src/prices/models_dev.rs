//! The API of models.dev: providers by name, each with `models`, and prices in USD per million tokens.
//!
//! The format is `packages/core/src/schema.ts` of github.com/anomalyco/models.dev.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use weir_catalog::config::{AboveConfig, PriceConfig};

use super::offer::{Fields, Offer, OfferContent, OfferTerms, field, price, required};

/// The prices are per million tokens already.
const PER_MILLION: i64 = 0;

/// The threshold of `context_over_200k`.
const OVER_200K: u64 = 200_000;

fn fields(raw: &RawValue) -> Option<Fields<'_>> {
    serde_json::from_str(raw.get()).ok()
}

fn models<'a>(provider: &'a RawValue) -> Option<Fields<'a>> {
    field(&fields(provider)?, "models").ok().flatten()
}

pub(super) fn is_format(entries: &BTreeMap<String, &RawValue>) -> bool {
    !entries.is_empty() && entries.values().all(|provider| models(provider).is_some())
}

/// Returns the offers of all providers.
pub(super) fn offers(entries: &BTreeMap<String, &RawValue>) -> Vec<Offer> {
    let mut offers = Vec::new();
    for (vendor, provider) in entries {
        for (model, raw) in models(provider).unwrap_or_default() {
            let terms = match fields(raw) {
                Some(fields) => terms(&fields),
                None => Err("it is not an object".to_owned()),
            };
            offers.push(Offer {
                entry: format!("{vendor}/{model}"),
                vendor: vendor.clone(),
                model,
                content: match terms {
                    Ok(Some(terms)) => OfferContent::Chat(Box::new(terms)),
                    Ok(None) => OfferContent::Other,
                    Err(why) => OfferContent::Unusable(why),
                },
            });
        }
    }
    offers
}

/// Returns the terms of a chat model; `None` for another kind, or a deprecated model.
fn terms(fields: &Fields<'_>) -> Result<Option<OfferTerms>, String> {
    let modalities: BTreeMap<String, Vec<String>> = required(fields, "modalities")?;
    let has = |side: &str, kind: &str| {
        let kinds = modalities.get(side);
        kinds.is_some_and(|kinds| kinds.iter().any(|one| one == kind))
    };
    let is_chat = modalities
        .get("output")
        .is_some_and(|kinds| *kinds == ["text"]);
    let status: Option<String> = field(fields, "status")?;
    if !is_chat || !has("input", "text") || status.as_deref() == Some("deprecated") {
        return Ok(None);
    }
    let cost: Fields<'_> = required(fields, "cost")?;
    let base = prices(&cost)?;
    let reasoning = price(&cost, "reasoning", PER_MILLION)?;
    if reasoning.is_some() && reasoning != base.output {
        return Err("`reasoning` differs from `output`".to_owned());
    }
    let limit: Fields<'_> = required(fields, "limit")?;
    let window = required(&limit, "context")?;
    Ok(Some(OfferTerms {
        name: field(fields, "name")?,
        price: PriceConfig {
            above: above(&cost)?.map(Box::new),
            ..base
        },
        least_window: window,
        most_window: window,
        max_output_tokens: required(&limit, "output")?,
        supports_tools: field(fields, "tool_call")?.unwrap_or(false),
        supports_vision: has("input", "image"),
        ends_on: None,
    }))
}

/// Returns the prices of long inputs: of the only tier, or, in older files, of inputs above 200,000 tokens.
fn above(cost: &Fields<'_>) -> Result<Option<AboveConfig>, String> {
    let tiers: Vec<Fields<'_>> = field(cost, "tiers")?.unwrap_or_default();
    let tier = match tiers.as_slice() {
        [] => {
            let over: Option<Fields<'_>> = field(cost, "context_over_200k")?;
            let over = over.map(|over| prices(&over)).transpose()?;
            return Ok(over.map(|price| AboveConfig {
                input_tokens: OVER_200K,
                price,
            }));
        }
        [tier] => tier,
        _ => return Err("it has more than one long-context price".to_owned()),
    };
    let selector: Fields<'_> = required(tier, "tier")?;
    let kind: Option<String> = field(&selector, "type")?;
    if kind.is_some_and(|kind| kind != "context") {
        return Err("its price depends on more than the input".to_owned());
    }
    Ok(Some(AboveConfig {
        input_tokens: required(&selector, "size")?,
        price: prices(tier)?,
    }))
}

fn prices(cost: &Fields<'_>) -> Result<PriceConfig, String> {
    let of = |name: &str| price(cost, name, PER_MILLION);
    Ok(PriceConfig {
        input: of("input")?,
        cache_read: of("cache_read")?,
        cache_write_short: of("cache_write")?,
        output: of("output")?,
        audio_input: of("input_audio")?,
        audio_output: of("output_audio")?,
        ..PriceConfig::default()
    })
}
