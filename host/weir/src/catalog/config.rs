//! How providers and models are written in the configuration.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use serde::Deserialize;

use weir_ledger::price::{NanoUsd, Price, TokenPrices};
use weir_storage::secrets::SecretSource;

/// An upstream: `[providers.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// The adapter in this slot translates for the provider: `openai`, `anthropic`, `gemini`, `ollama` or an installed
    /// one. Required.
    pub adapter: String,
    /// The adapter's paths are appended to this URL, such as `https://api.openai.com/v1`. Default: none.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The secret source holds at least 16 bytes; if the credential is missing, the provider and models that only it
    /// serves are left out. Default: none.
    #[serde(default)]
    pub credential: Option<SecretSource>,
    /// The adapter defines these options; see `plugins/README.md`, "Options". Default: none.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// `first_byte_ms`, `first_token_ms` and `idle_ms` here replace those of `[timeouts]`. Default: `[timeouts]`.
    #[serde(default)]
    pub timeouts: TimeoutOverrides,
}

/// A provider's own time-outs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutOverrides {
    /// See `timeouts.first_byte_ms`.
    pub first_byte_ms: Option<NonZeroU64>,
    /// See `timeouts.first_token_ms`.
    pub first_token_ms: Option<NonZeroU64>,
    /// See `timeouts.idle_ms`.
    pub idle_ms: Option<NonZeroU64>,
}

/// A model that clients can ask for: `[models."ID"]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Lists show this name. Default: the id.
    #[serde(default)]
    pub name: Option<String>,
    /// Input and output together may have this many tokens. Required.
    pub context_window: u32,
    /// A request may ask for this many output tokens. Required.
    pub max_output_tokens: u32,
    /// This output limit, in tokens, applies to requests that set none. Required.
    pub default_output_tokens: u32,
    /// One input image counts as at most this many tokens. Default: 0.
    #[serde(default)]
    pub max_image_tokens: u32,
    /// The model can call tools. Default: `false`.
    #[serde(default)]
    pub supports_tools: bool,
    /// The model accepts images. Default: `false`.
    #[serde(default)]
    pub supports_vision: bool,
    /// A model priced per image receives whole chats instead of the last user message. Default: `false`.
    #[serde(default)]
    pub supports_chat: bool,
    /// The price covers these image sizes, such as `1024x1024`; the first is the default. Default: any.
    #[serde(default)]
    pub image_sizes: Vec<String>,
    /// The price covers these image qualities, such as `medium`; the first is the default. Default: any.
    #[serde(default)]
    pub image_qualities: Vec<String>,
    /// These providers serve the model, in order of preference after those with a `weight`. Required.
    pub upstreams: Vec<CandidateConfig>,
    /// The provider's price applies to upstreams without a price of their own. Default: each upstream's own.
    #[serde(default)]
    pub price: Option<PriceConfig>,
}

/// One of a model's upstreams.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CandidateConfig {
    /// The provider is a name under `[providers]`. Required.
    pub provider: String,
    /// The provider knows the model by this name. Default: the model's id.
    #[serde(default)]
    pub model: Option<String>,
    /// This provider charges this price. Default: the model's price.
    #[serde(default)]
    pub price: Option<PriceConfig>,
    /// weir streams from the provider even for plain requests, so that a timeout returns partial text; set it only if
    /// the provider reports usage in streams. Default: `false`.
    #[serde(default)]
    pub stream_plain: bool,
    /// Upstreams with a weight come first and share requests in proportion: weights 3 and 1 give three in four to the
    /// first. Default: none.
    #[serde(default)]
    pub weight: Option<NonZeroU32>,
}

/// What the provider asks, in USD: per million tokens, or per image.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceConfig {
    /// Price of input tokens; a model priced per image has none. Required.
    pub input: Option<NanoUsd>,
    /// Price of input tokens read from the provider's cache. Default: `input`.
    pub cache_read: Option<NanoUsd>,
    /// Price of input tokens written to the provider's cache for a short time. Default: `input`.
    pub cache_write_short: Option<NanoUsd>,
    /// Price of input tokens written to the provider's cache for a long time. Default: `cache_write_short`.
    pub cache_write_long: Option<NanoUsd>,
    /// Price of output tokens; a model priced per image has none. Required.
    pub output: Option<NanoUsd>,
    /// `{ input_tokens, price }`: if the input has more than `input_tokens` tokens, this price applies instead.
    /// Default: none.
    pub above: Option<Box<AboveConfig>>,
    /// Price of one image, instead of prices of tokens. Default: none.
    pub image: Option<NanoUsd>,
}

/// The second set of prices, for long inputs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AboveConfig {
    /// Applies when the input has more tokens than this.
    pub input_tokens: u64,
    /// The prices then.
    pub price: PriceConfig,
}

impl PriceConfig {
    /// The price.
    ///
    /// # Errors
    ///
    /// What is missing, or one too many, to be said of it.
    pub fn resolve(&self) -> Result<Price, &'static str> {
        if let Some(image) = self.image {
            if self.input.is_some() || self.output.is_some() || self.above.is_some() {
                return Err("has a price per image beside prices per token");
            }
            return Ok(Price::Image(image));
        }
        let above = match &self.above {
            None => None,
            Some(above) if above.price.above.is_some() || above.price.image.is_some() => {
                return Err("has prices inside `above` that only belong beside it");
            }
            Some(above) => Some((above.input_tokens, above.price.token_prices()?)),
        };
        Ok(Price::Text {
            base: self.token_prices()?,
            above,
        })
    }

    fn token_prices(&self) -> Result<TokenPrices, &'static str> {
        let input = self
            .input
            .ok_or("lacks `input`, the price of a million input tokens")?;
        let cache_write_short = self.cache_write_short.unwrap_or(input);
        Ok(TokenPrices {
            input,
            cache_read: self.cache_read.unwrap_or(input),
            cache_write_short,
            cache_write_long: self.cache_write_long.unwrap_or(cache_write_short),
            output: self
                .output
                .ok_or("lacks `output`, the price of a million output tokens")?,
        })
    }
}
