//! The catalog as operators see it, and in what two of them differ. No credential is in it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_ledger::price::{NanoUsd, Price, TokenPrices};

use super::{Catalog, LeftOut, Missing, Model, is_served};

/// What `GET /admin/catalog` answers.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CatalogListing {
    /// The models whose providers have their credentials, by id.
    pub models: Vec<ListedModel>,
    /// All providers that are configured, by name.
    pub providers: Vec<ListedProvider>,
    /// What providers lack that cannot be used.
    pub left_out: Vec<ListedGap>,
    /// What providers' prices are multiplied with for text, and for images on top of that.
    pub price_factors: ListedFactors,
}

/// A model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedModel {
    /// The name by which clients ask for it.
    pub id: String,
    /// The name that lists show.
    pub name: String,
    /// Whether an adapter for it is there by now.
    pub served: bool,
    /// Tokens of input and output together.
    pub context_window: u32,
    /// The largest output limit, in tokens.
    pub max_output_tokens: u32,
    /// The output limit where the client gives none, in tokens.
    pub default_output_tokens: u32,
    /// Tokens that one image of the input counts for at most.
    pub max_image_tokens: u32,
    /// Whether it can call tools.
    pub supports_tools: bool,
    /// Whether it reads images.
    pub supports_vision: bool,
    /// Whether it is sent chats as they are, if it makes images.
    pub supports_chat: bool,
    /// The sizes of images that the price covers; all that there are if empty.
    pub image_sizes: Vec<String>,
    /// The qualities likewise.
    pub image_qualities: Vec<String>,
    /// The upstreams that serve it, in order of preference.
    pub upstreams: Vec<ListedUpstream>,
}

/// One of a model's upstreams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedUpstream {
    /// The provider's name.
    pub provider: String,
    /// The model's name there.
    pub model: String,
    /// What the provider asks, before the factors, in USD: per million tokens, or per image.
    #[schema(value_type = Object)]
    pub price: Value,
    /// Its share of the requests among the upstreams that have one; absent from those that are asked after these, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub weight: Option<NonZeroU32>,
}

/// A provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedProvider {
    /// Its name.
    pub name: String,
    /// The slot of its adapter.
    pub adapter: String,
    /// Where it is; null for an adapter that answers by itself.
    pub base_url: Option<String>,
    /// Settings for the adapter.
    pub options: BTreeMap<String, String>,
}

/// A provider that cannot be used.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ListedGap {
    /// Its name.
    pub provider: String,
    /// What it lacks.
    pub why: String,
    /// The models that nobody else serves.
    pub models: Vec<String>,
}

/// Factors on prices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedFactors {
    /// For every model.
    pub text: f64,
    /// For images, on top of that.
    pub image: f64,
}

/// In what one catalog differs from another.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Models that are new.
    pub added: Vec<String>,
    /// Models that are gone.
    pub removed: Vec<String>,
    /// Models of which anything differs, their prices, or their providers.
    pub changed: Vec<String>,
}

impl CatalogListing {
    /// A catalog as it is at this moment.
    pub fn of(catalog: &Catalog) -> Self {
        let slots = catalog.plugins.serving();
        // An adapter that has come in since is missing no more.
        let is_missing = |left_out: &&LeftOut| match &left_out.why {
            Missing::Credential(_) => true,
            Missing::Adapter(slot) => !slots.contains_key(slot.as_str()),
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
                    base_url: provider.base_url.clone(),
                    options: provider.options.clone(),
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

    /// In what this one differs from one before it, as far as operators see it.
    pub fn since(&self, before: &Self) -> Difference {
        let models = self.by_id();
        let models_before = before.by_id();
        let ids = |of: &BTreeMap<String, Value>, not_in: &BTreeMap<String, Value>| -> Vec<String> {
            let missing = of.keys().filter(|id| !not_in.contains_key(*id));
            missing.cloned().collect()
        };
        let differs = |(id, model): &(&String, &Value)| {
            models_before
                .get(*id)
                .is_some_and(|before| before != *model)
        };
        Difference {
            added: ids(&models, &models_before),
            removed: ids(&models_before, &models),
            changed: models
                .iter()
                .filter(differs)
                .map(|(id, _)| id.clone())
                .collect(),
        }
    }

    /// All that is told of each model. Whether its adapter is there is no matter of configuration.
    fn by_id(&self) -> BTreeMap<String, Value> {
        let model = |model: &ListedModel| {
            let named = model.upstreams.iter().map(|upstream| &upstream.provider);
            let providers: Vec<_> = named
                .filter_map(|name| self.providers.iter().find(|found| found.name == *name))
                .collect();
            let served = true;
            let of_config = ListedModel {
                served,
                ..model.clone()
            };
            let all = json!([of_config, providers, self.price_factors]);
            (model.id.clone(), all)
        };
        self.models.iter().map(model).collect()
    }
}

impl Difference {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

fn listed(model: &Model, served: bool) -> ListedModel {
    ListedModel {
        id: model.id.clone(),
        name: model.name.clone(),
        served,
        context_window: model.context_window,
        max_output_tokens: model.max_output_tokens,
        default_output_tokens: model.default_output_tokens,
        max_image_tokens: model.max_image_tokens,
        supports_tools: model.supports_tools,
        supports_vision: model.supports_vision,
        supports_chat: model.supports_chat,
        image_sizes: model.image_sizes.clone(),
        image_qualities: model.image_qualities.clone(),
        upstreams: model
            .candidates
            .iter()
            .map(|candidate| ListedUpstream {
                provider: candidate.upstream.name.clone(),
                model: candidate.model.clone(),
                price: price(&candidate.price),
                weight: candidate.weight,
            })
            .collect(),
    }
}

fn price(price: &Price) -> Value {
    match price {
        Price::Image(image) => json!({ "image": usd(*image) }),
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
    json!({
        "input": usd(prices.input),
        "cache_read": usd(prices.cache_read),
        "cache_write_short": usd(prices.cache_write_short),
        "cache_write_long": usd(prices.cache_write_long),
        "output": usd(prices.output),
    })
}

fn usd(NanoUsd(nano): NanoUsd) -> f64 {
    nano as f64 / 1e9
}
