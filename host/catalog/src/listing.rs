//! The operators' view of the catalog, without credentials, and the differences of two catalogs.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_ledger::Unit;
use weir_ledger::price::{NanoUsd, Price, TokenPrices};
use weir_request::limits::data::Regions;
use weir_sandbox::adapter::WorkKind;
use weir_upstream::image_tokens::ImageFamily;

use super::config::{InputUnit, PromptCaching, RouteBy};
use super::end_date::EndDate;
use super::{Catalog, MissingPart, Model, OmittedProvider, is_served};

/// The response of `GET /admin/catalog`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CatalogListing {
    /// Models whose providers have their credentials, by id.
    pub models: Vec<ListedModel>,
    /// All configured providers, by name.
    pub providers: Vec<ListedProvider>,
    /// Providers that are left out, with the missing parts.
    pub left_out: Vec<ListedGap>,
    /// Factors on providers' prices for text, and additional factors for images.
    pub price_factors: ListedFactors,
}

/// A model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedModel {
    /// The model's name in requests.
    pub id: String,
    /// The name that lists show.
    pub name: String,
    /// Other names in requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The day on which the provider ends the model, such as `2026-11-30`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Date, nullable = false)]
    pub ends_on: Option<EndDate>,
    /// Whether its adapter exists.
    pub served: bool,
    /// The kind of its requests.
    #[serde(default)]
    pub kind: WorkKind,
    /// The unit of its input, which the price counts.
    #[serde(default)]
    pub input_unit: InputUnit,
    /// The order of its upstreams.
    #[serde(default)]
    pub route: RouteBy,
    /// The origin of marks of cached prefixes.
    #[serde(default)]
    pub prompt_caching: PromptCaching,
    /// Tokens of input and output together.
    pub context_window: u32,
    /// The largest output limit, in tokens.
    pub max_output_tokens: u32,
    /// The output limit for requests without one, in tokens.
    pub default_output_tokens: u32,
    /// Maximum tokens of one input image.
    pub max_image_tokens: u32,
    /// The family whose formula counts an image by its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub image_family: Option<ImageFamily>,
    /// Whether the model can call tools.
    pub supports_tools: bool,
    /// Whether the model accepts images.
    pub supports_vision: bool,
    /// Whether an image model receives complete chats.
    pub supports_chat: bool,
    /// Image sizes that the price covers; all sizes if empty.
    pub image_sizes: Vec<String>,
    /// Image qualities that the price covers; all qualities if empty.
    pub image_qualities: Vec<String>,
    /// The model's upstreams, in order of preference.
    pub upstreams: Vec<ListedUpstream>,
}

/// One of a model's upstreams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedUpstream {
    /// The provider's name.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// The provider's price, before the factors, in USD, by the names of the settings: of a million tokens or
    /// `characters`, of one `image` or `search`, or of a `minute`.
    #[schema(value_type = Object)]
    pub price: Value,
    /// The share of requests among the upstreams with a weight; absent for upstreams that follow these, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub weight: Option<NonZeroU32>,
    /// Whether weir streams from the upstream even for plain requests.
    #[serde(default)]
    pub stream_plain: bool,
}

/// A provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedProvider {
    /// The provider's name.
    pub name: String,
    /// The slot of its adapter.
    pub adapter: String,
    /// Whether requests may go to it.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The provider's URL; null for an adapter that needs none.
    pub base_url: Option<String>,
    /// Options of the adapter.
    pub options: BTreeMap<String, String>,
    /// Places where the provider processes data; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false)]
    pub regions: Option<Regions>,
    /// Days for which the provider keeps requests; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retention_days: Option<u16>,
}

/// A provider that is left out.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ListedGap {
    /// The provider's name.
    pub provider: String,
    /// The missing part.
    pub why: String,
    /// The models that no other provider serves.
    pub models: Vec<String>,
}

/// Factors on prices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedFactors {
    /// For every model.
    pub text: f64,
    /// The additional factor for images.
    pub image: f64,
}

/// The differences between two catalogs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CatalogDifference {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// Models with a change in any field, in their prices or in their providers.
    pub changed: Vec<String>,
}

impl CatalogListing {
    pub fn of(catalog: &Catalog) -> Self {
        let slots = catalog.plugins.serving();
        // An adapter that was installed since is not missing any more.
        let is_missing = |left_out: &&OmittedProvider| match &left_out.why {
            MissingPart::Unset(_) | MissingPart::Credential(_) | MissingPart::Enabled => true,
            MissingPart::Adapter(slot) => !slots.contains_key(slot.as_str()),
        };
        let left_out = catalog.left_out.iter().filter(is_missing);
        let providers = catalog.providers.iter();
        let factors = &catalog.factors;
        Self {
            models: catalog
                .models
                .values()
                .map(|model| listed(model, is_served(model, &catalog.plugins)))
                .collect(),
            providers: providers
                .map(|(name, provider)| ListedProvider {
                    name: name.clone(),
                    adapter: provider.adapter.clone(),
                    enabled: provider.enabled,
                    base_url: provider.base_url.clone(),
                    options: provider.options.clone(),
                    regions: provider.regions.clone(),
                    retention_days: provider.retention_days,
                })
                .collect(),
            left_out: left_out
                .map(|left_out| ListedGap {
                    provider: left_out.provider.clone(),
                    why: left_out.why.to_string(),
                    models: left_out.models.clone(),
                })
                .collect(),
            price_factors: ListedFactors {
                text: factors.text.0 as f64 / 1e4,
                image: factors.image.0 as f64 / 1e4,
            },
        }
    }

    /// Returns the differences from an earlier listing, as far as operators see them.
    pub fn since(&self, before: &Self) -> CatalogDifference {
        let mut difference = CatalogDifference {
            removed: self.removed_since(before),
            ..CatalogDifference::default()
        };
        for model in &self.models {
            match before.model(&model.id) {
                None => difference.added.push(model.id.clone()),
                Some(earlier) => {
                    // Whether the adapter exists is not configuration.
                    let earlier = ListedModel {
                        served: model.served,
                        ..earlier.clone()
                    };
                    let is_same = earlier == *model
                        && before.price_factors == self.price_factors
                        && before.providers_of(model).eq(self.providers_of(model));
                    if !is_same {
                        difference.changed.push(model.id.clone());
                    }
                }
            }
        }
        difference
    }

    pub(crate) fn model(&self, id: &str) -> Option<&ListedModel> {
        self.models.iter().find(|model| model.id == id)
    }

    /// Returns the ids of the models that only the earlier listing has.
    pub(crate) fn removed_since(&self, before: &Self) -> Vec<String> {
        let ids = before.models.iter().map(|model| &model.id);
        ids.filter(|id| self.model(id).is_none()).cloned().collect()
    }

    fn providers_of(&self, model: &ListedModel) -> impl Iterator<Item = &ListedProvider> {
        let names = model.upstreams.iter().map(|upstream| &upstream.provider);
        names.filter_map(|name| self.providers.iter().find(|found| found.name == *name))
    }
}

impl CatalogDifference {
    /// Returns whether the difference is empty.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

fn listed(model: &Model, served: bool) -> ListedModel {
    ListedModel {
        id: model.id.clone(),
        name: model.name.clone(),
        aliases: model.aliases.clone(),
        ends_on: model.ends_on,
        served,
        kind: model.kind,
        input_unit: model.unit,
        route: model.route,
        prompt_caching: model.prompt_caching,
        context_window: model.context_window,
        max_output_tokens: model.max_output_tokens,
        default_output_tokens: model.default_output_tokens,
        max_image_tokens: model.max_image_tokens,
        image_family: model.image_family,
        supports_tools: model.supports_tools,
        supports_vision: model.supports_vision,
        supports_chat: model.supports_chat,
        image_sizes: model.image_sizes.clone(),
        image_qualities: model.image_qualities.clone(),
        upstreams: model
            .candidates
            .iter()
            .map(|candidate| ListedUpstream {
                provider: candidate.upstream().name.clone(),
                model: candidate.model.clone(),
                price: price(&candidate.price),
                weight: candidate.weight,
                stream_plain: candidate.stream_plain,
            })
            .collect(),
    }
}

/// Returns the units of a price by the name of its setting, in words.
pub fn units_of_price(name: &str) -> &'static str {
    match name {
        "image" => "per image",
        "search" => "per search",
        "characters" => "per million characters",
        "minute" => "per minute",
        _ => "per million tokens",
    }
}

fn price(price: &Price) -> Value {
    match price {
        Price::Image(image) => json!({ "image": usd(*image) }),
        Price::Units { unit, price, .. } => {
            let name = match unit {
                Unit::Characters => "characters",
                Unit::Seconds => "minute",
                Unit::SearchUnits => "search",
                Unit::Images => "image",
                Unit::Tokens => "input",
            };
            json!({ name: usd(*price) })
        }
        Price::Text { base, above: None } => tokens(base),
        Price::Text {
            base,
            above: Some((input_tokens, price)),
        } => {
            let mut all = tokens(base);
            all["above"] = json!({ "input_tokens": input_tokens, "price": tokens(price) });
            all
        }
    }
}

fn tokens(prices: &TokenPrices) -> Value {
    let named = prices.named().into_iter();
    named.map(|(name, price)| (name, usd(price))).collect()
}

fn yes() -> bool {
    true
}

fn usd(NanoUsd(nano): NanoUsd) -> f64 {
    nano as f64 / 1e9
}
