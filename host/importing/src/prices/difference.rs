//! The differences between a price file and the configured models.

use std::collections::BTreeMap;

use weir_catalog::aliases;
use weir_catalog::config::{AboveConfig, CandidateConfig, ModelConfig, PriceConfig};
use weir_ledger::price::{NanoUsd, Price, TokenPrices};
use weir_storage::clock::Millis;

use super::offer::{Offer, OfferContent, OfferTerms};

/// The choice of offers to compare.
pub struct ImportScope {
    /// The file's names of the configured providers.
    pub vendors: BTreeMap<String, String>,
    /// Patterns of models' ids, in which `*` stands for any text; all if empty.
    pub models: Vec<String>,
}

#[derive(Debug, Default)]
pub struct ImportDifference {
    /// Models that the configuration lacks.
    pub added: Vec<NewModel>,
    /// Models with another price, limit or end.
    pub changed: Vec<ChangedModel>,
    /// Models that the file lacks, as provider and id.
    pub removed: Vec<(String, String)>,
    /// Entries that cannot be compared or added, with the reason.
    pub left_out: Vec<(String, String)>,
}

/// A model that the configuration lacks.
#[derive(Debug)]
pub struct NewModel {
    pub provider: String,
    /// The provider's name of the model, which becomes the id.
    pub id: String,
    /// The model's prices and limits.
    pub terms: OfferTerms,
}

/// A model with another price, limit or end.
#[derive(Debug)]
pub struct ChangedModel {
    pub provider: String,
    pub id: String,
    pub prices: Vec<FieldChange>,
    /// The changed limits, and the end.
    pub limits: Vec<FieldChange>,
    /// The new price, if a price has changed.
    pub price: Option<PriceConfig>,
    /// The reason for which no section can override the price.
    pub by_hand: Option<&'static str>,
}

#[derive(Debug)]
pub struct FieldChange {
    /// The field's path in the model's section.
    pub field: String,
    pub before: String,
    /// The file's value.
    pub after: String,
}

/// Compares offers with the configured models.
pub fn compare(
    offers: Vec<Offer>,
    models: &BTreeMap<String, ModelConfig>,
    scope: &ImportScope,
    now: Millis,
) -> ImportDifference {
    let mut by_vendor: BTreeMap<String, BTreeMap<String, Offer>> = BTreeMap::new();
    for offer in offers {
        let of_vendor = by_vendor.entry(offer.vendor.clone()).or_default();
        of_vendor.insert(offer.model.clone(), offer);
    }
    let mut difference = ImportDifference::default();
    for (provider, vendor) in &scope.vendors {
        let mut offers = by_vendor.remove(vendor).unwrap_or_default();
        for (id, model) in models.iter().filter(|(id, _)| scope.includes(id)) {
            for upstream in model
                .upstreams
                .iter()
                .filter(|one| one.provider == *provider)
            {
                difference.compare(id, model, upstream, &offers);
            }
        }
        for (id, model) in models {
            forget(&mut offers, provider, id, model);
        }
        for offer in offers.into_values() {
            if scope.includes(&offer.model) {
                difference.add(provider, offer, models, now);
            }
        }
    }
    difference
}

/// Removes the offers that a configured model already has, also under an alias.
fn forget(offers: &mut BTreeMap<String, Offer>, provider: &str, id: &str, model: &ModelConfig) {
    for alias in &model.aliases {
        offers.remove(alias);
    }
    for upstream in &model.upstreams {
        if upstream.provider == provider {
            offers.remove(upstream.model.as_deref().unwrap_or(id));
        }
    }
}

impl ImportScope {
    fn includes(&self, id: &str) -> bool {
        let mut patterns = self.models.iter();
        self.models.is_empty() || patterns.any(|pattern| matches(pattern, id))
    }
}

/// Returns whether a text fits a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(start) else {
        return false;
    };
    let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.any(|at| matches(rest, &text[at..]))
}

impl ImportDifference {
    fn compare(
        &mut self,
        id: &str,
        model: &ModelConfig,
        upstream: &CandidateConfig,
        offers: &BTreeMap<String, Offer>,
    ) {
        let provider = &upstream.provider;
        let terms = match offers.get(upstream.model.as_deref().unwrap_or(id)) {
            None => {
                self.removed.push((provider.clone(), id.to_owned()));
                return;
            }
            Some(offer) => match &offer.content {
                OfferContent::Chat(terms) => terms,
                OfferContent::Other => return,
                OfferContent::Unusable(why) => {
                    self.left_out.push((offer.entry.clone(), why.clone()));
                    return;
                }
            },
        };
        let configured = upstream.price.as_ref().or(model.price.as_ref());
        let Some(Ok(Price::Text { base, above })) = configured.map(PriceConfig::resolve) else {
            // The file's prices are per token.
            return;
        };
        let prices = price_changes(&base, above.as_ref(), &terms.price);
        let limits = limit_changes(model, terms);
        if prices.is_empty() && limits.is_empty() {
            return;
        }
        let price = (!prices.is_empty()).then(|| new_price(&terms.price, above.as_ref()));
        let by_hand = match (&price, &upstream.price) {
            (None, _) => None,
            (Some(_), Some(_)) => Some("the upstream has its own price"),
            (Some(_), None) if model.upstreams.len() > 1 => {
                Some("the price applies to several upstreams")
            }
            (Some(_), None) => None,
        };
        self.changed.push(ChangedModel {
            provider: provider.clone(),
            id: id.to_owned(),
            prices,
            limits,
            price,
            by_hand,
        });
    }

    fn add(
        &mut self,
        provider: &str,
        offer: Offer,
        models: &BTreeMap<String, ModelConfig>,
        now: Millis,
    ) {
        let terms = match offer.content {
            OfferContent::Chat(terms) => terms,
            OfferContent::Other => return,
            OfferContent::Unusable(why) => {
                self.left_out.push((offer.entry, why));
                return;
            }
        };
        let why = if !aliases::is_name(&offer.model) {
            "its name is no valid id".to_owned()
        } else if models.contains_key(&offer.model) {
            "the configuration has this model at another provider".to_owned()
        } else if let Err(why) = terms.price.resolve() {
            format!("its price {why}")
        } else if terms.price.fields().iter().all(|(_, usd)| usd.0 == 0) {
            // The files have such prices for experimental models, and a gateway would serve them for free.
            "its price is 0".to_owned()
        } else if terms.max_output_tokens == 0 || terms.max_output_tokens > terms.least_window {
            "its output limit does not fit its context window".to_owned()
        } else if let Some(day) = terms.ends_on.filter(|day| day.has_come(now)) {
            format!("the provider ended it on {day}")
        } else {
            self.added.push(NewModel {
                provider: provider.to_owned(),
                id: offer.model,
                terms: *terms,
            });
            return;
        };
        self.left_out.push((offer.entry, why));
    }
}

/// Returns the price to write. If the file has no long-context price, it is the base price: a section cannot remove one.
fn new_price(offered: &PriceConfig, configured: Option<&(u64, TokenPrices)>) -> PriceConfig {
    let mut price = offered.clone();
    if let (None, Some((input_tokens, _))) = (&price.above, configured) {
        price.above = Some(Box::new(AboveConfig {
            input_tokens: *input_tokens,
            price: offered.clone(),
        }));
    }
    price
}

fn price_changes(
    base: &TokenPrices,
    above: Option<&(u64, TokenPrices)>,
    offered: &PriceConfig,
) -> Vec<FieldChange> {
    let mut changes = token_changes("", Some(base), offered);
    match (above, &offered.above) {
        (None, None) => {}
        (Some((_, prices)), None) => {
            // The same price as the base is no long-context price.
            if !token_changes("", Some(prices), offered).is_empty() {
                changes.push(FieldChange {
                    field: "above".to_owned(),
                    before: "set".to_owned(),
                    after: "none".to_owned(),
                });
            }
        }
        (configured, Some(offered)) => {
            let threshold = configured.map(|(input_tokens, _)| *input_tokens);
            if threshold != Some(offered.input_tokens) {
                changes.push(FieldChange {
                    field: "above.input_tokens".to_owned(),
                    before: threshold.map_or_else(none, |tokens| tokens.to_string()),
                    after: offered.input_tokens.to_string(),
                });
            }
            let prices = configured.map(|(_, prices)| prices);
            changes.extend(token_changes("above.price.", prices, &offered.price));
        }
    }
    changes
}

/// Returns the changes of the prices that the file has.
fn token_changes(
    path: &str,
    configured: Option<&TokenPrices>,
    offered: &PriceConfig,
) -> Vec<FieldChange> {
    let configured = configured.map(TokenPrices::named);
    let of = |name: &str| {
        let prices = configured.as_ref()?;
        prices
            .iter()
            .find(|(field, _)| *field == name)
            .map(|(_, price)| *price)
    };
    let mut changes = Vec::new();
    for (name, after) in offered.fields() {
        let before = of(name);
        if before != Some(after) {
            changes.push(FieldChange {
                field: format!("{path}{name}"),
                before: before.map_or_else(none, NanoUsd::decimal),
                after: after.decimal(),
            });
        }
    }
    changes
}

fn limit_changes(model: &ModelConfig, terms: &OfferTerms) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    let mut change = |field: &str, before: String, after: String| {
        changes.push(FieldChange {
            field: field.to_owned(),
            before,
            after,
        });
    };
    let window = model.context_window;
    if !(terms.least_window..=terms.most_window).contains(&window) {
        let after = terms.least_window.to_string();
        change("context_window", window.to_string(), after);
    }
    let output = terms.max_output_tokens;
    if output != model.max_output_tokens {
        change(
            "max_output_tokens",
            model.max_output_tokens.to_string(),
            output.to_string(),
        );
        if output < model.default_output_tokens {
            change(
                "default_output_tokens",
                model.default_output_tokens.to_string(),
                output.to_string(),
            );
        }
    }
    if let Some(day) = terms.ends_on
        && model.ends_on != Some(day)
    {
        let before = model.ends_on.map_or_else(none, |day| day.to_string());
        change("ends_on", before, day.to_string());
    }
    changes
}

fn none() -> String {
    "none".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, fits) in [
            ("gpt-5", "gpt-5", true),
            ("gpt-5", "gpt-5-mini", false),
            ("gpt-*", "gpt-", true),
            ("*-mini", "gpt-5-mini", true),
            ("g*-*i", "gpt-5-mini", true),
            ("*", "", true),
            ("*x*", "gpt-5", false),
            ("*é", "aé", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
