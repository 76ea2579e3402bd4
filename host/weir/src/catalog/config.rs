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
    /// The slot of the adapter that speaks this upstream's dialect, e.g. `openai`.
    pub adapter: String,
    /// What the adapter's paths are appended to, e.g. `https://api.openai.com/v1`. Left out for an
    /// adapter that answers by itself.
    #[serde(default)]
    pub base_url: Option<String>,
    /// Where the credential comes from: `{ env = "NAME" }` or `{ file = "PATH" }`; at least 16 bytes. A provider whose
    /// credential is absent is left out, and so are models that only it serves.
    #[serde(default)]
    pub credential: Option<SecretSource>,
    /// Settings that the adapter understands: what differs between servers of one dialect.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Milliseconds; each replaces the setting of that name under `timeouts`.
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
    /// The name that lists show. Default: its id.
    #[serde(default)]
    pub name: Option<String>,
    /// Tokens of input and output together.
    pub context_window: u32,
    /// Tokens of output that a request may ask for.
    pub max_output_tokens: u32,
    /// Tokens of output that are allowed, and sent upstream, when the client sets no limit.
    pub default_output_tokens: u32,
    /// Tokens that one image of the input counts for at most.
    #[serde(default)]
    pub max_image_tokens: u32,
    /// Whether it can call tools.
    #[serde(default)]
    pub supports_tools: bool,
    /// Whether it reads images.
    #[serde(default)]
    pub supports_vision: bool,
    /// Whether a model that is priced per image is sent chats as they are. One that is not makes an image of what the user
    /// said last.
    #[serde(default)]
    pub supports_chat: bool,
    /// The sizes of images that the price covers, e.g. `1024x1024`; the first is asked for where a client names none.
    /// Default: whatever the upstream takes.
    #[serde(default)]
    pub image_sizes: Vec<String>,
    /// The qualities of images that the price covers, e.g. `medium`, likewise.
    #[serde(default)]
    pub image_qualities: Vec<String>,
    /// The upstreams that serve it, in order of preference, but for those that have a `weight`.
    pub upstreams: Vec<CandidateConfig>,
    /// The price, unless an upstream has its own.
    #[serde(default)]
    pub price: Option<PriceConfig>,
}

/// One of a model's upstreams.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CandidateConfig {
    /// A name under `providers`.
    pub provider: String,
    /// The model's name there. Default: its id.
    #[serde(default)]
    pub model: Option<String>,
    /// The price there. Default: the model's price.
    #[serde(default)]
    pub price: Option<PriceConfig>,
    /// Whether weir may ask for a stream when the client wants the whole answer. If the request then times out, the client
    /// gets the text that has arrived, and pays for it. Set it if the server reports usage in streams. Default: false.
    #[serde(default)]
    pub stream_plain: bool,
    /// Its share of the requests among the model's upstreams that have a weight: with 3 and 1, three in four. These are
    /// asked first, and then those without one, in order. A conversation stays with one of them.
    #[serde(default)]
    pub weight: Option<NonZeroU32>,
}

/// What the provider asks, in USD: per million tokens, or per image.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceConfig {
    /// Per million input tokens.
    pub input: Option<NanoUsd>,
    /// Per million input tokens read from the cache. Default: as `input`.
    pub cache_read: Option<NanoUsd>,
    /// Per million input tokens written to the cache for a short time. Default: as `input`.
    pub cache_write_short: Option<NanoUsd>,
    /// Per million input tokens written to the cache for a long time. Default: as `cache_write_short`.
    pub cache_write_long: Option<NanoUsd>,
    /// Per million output tokens.
    pub output: Option<NanoUsd>,
    /// Other prices for requests with a long input.
    pub above: Option<Box<AboveConfig>>,
    /// Per image; a model that generates images has this and nothing else.
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
