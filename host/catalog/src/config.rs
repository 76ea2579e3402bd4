//! The configuration format of providers and models.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_ledger::Unit;
use weir_ledger::price::{NanoUsd, Price, TokenPrices};
use weir_request::limits::data::Regions;
use weir_sandbox::adapter::WorkKind;
use weir_sandbox::adapter::bindings::adapter::CredentialSlot;
use weir_upstream::credential::settings::CredentialSettings;
use weir_upstream::image_tokens::ImageFamily;

use super::end_date::EndDate;

/// An upstream: `[providers.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// Slot of the adapter: `openai`, `anthropic`, `gemini`, `bedrock`, `ollama` or an installed one. Required.
    pub adapter: String,
    /// Whether requests may go to the provider. Without it, models that only it serves respond with
    /// `UPSTREAM_UNAVAILABLE`. Default: `true`.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// URL to which the adapter's paths are appended, such as `https://api.openai.com/v1`. Default: none.
    #[serde(default)]
    pub base_url: Option<String>,
    /// Secret source of at least 16 bytes, or [how to obtain a token](#credentials-of-clouds); if it is missing, the
    /// provider and models that only it serves are left out. Default: none.
    #[serde(default)]
    pub credential: Option<CredentialSettings>,
    /// Several credentials in place of `credential`: conversations are shared out between them, and one that the provider
    /// refuses or limits is used last until it works again. Default: none.
    #[serde(default)]
    pub credentials: Vec<CredentialSettings>,
    /// Place of the credential in requests: `"bearer"`, `{ header = "NAME" }` or `{ query = "NAME" }`. Default: the
    /// adapter's.
    #[serde(default)]
    pub credential_slot: Option<SlotConfig>,
    /// Options of the adapter; see `plugins/README.md`, "Options". Default: none.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// `first_byte_ms`, `first_token_ms` and `idle_ms` in place of those of `[timeouts]`. Default: `[timeouts]`.
    #[serde(default)]
    pub timeouts: TimeoutOverrides,
    /// Places where the provider processes data, such as `["eu"]`: 1 to 16 words of lower-case letters, digits and `-`.
    /// Requests with limits on regions need it. Default: unknown.
    #[serde(default)]
    pub regions: Option<Regions>,
    /// Days for which the provider keeps requests; 0 to 65,535. Requests with a limit on retention need it. Default:
    /// unknown.
    #[serde(default)]
    pub retention_days: Option<u16>,
}

/// The place of a provider's credential in requests.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotConfig {
    /// `Authorization: Bearer`.
    Bearer,
    /// This header.
    Header(String),
    /// This query parameter.
    Query(String),
}

/// The timeouts of a provider or a model.
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

/// A model that clients can request: `[models."ID"]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Whether clients can request the model. Default: `true`.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Name in lists. Default: the id.
    #[serde(default)]
    pub name: Option<String>,
    /// Other names that requests may give, such as dated ids; lists and responses give the id. Default: none.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Day on which the provider ends the model, such as `2026-11-30`; `weir check` and the console warn from 60 days
    /// before. Default: none.
    #[serde(default)]
    pub ends_on: Option<EndDate>,
    /// Kind of its requests: `chat`, also for images, `embeddings`, `rerank`, `moderation`, `speech` or `transcription`.
    /// Default: `chat`.
    #[serde(default)]
    pub kind: WorkKind,
    /// Tokens of input and output together; of one text, for `embeddings`, `rerank` and `moderation`. Characters or seconds of
    /// input, if these have the price. Required.
    pub context_window: u32,
    /// Output tokens that a request may ask for, or that audio may have. Default: required for `chat`, and for audio with
    /// prices of tokens.
    #[serde(default)]
    pub max_output_tokens: u32,
    /// Least output limit, in tokens, of requests that set none; a quarter of the available credits may pay for more.
    /// Default: required for `chat`.
    #[serde(default)]
    pub default_output_tokens: u32,
    /// Tokens that one input image counts as at most. Default: 0.
    #[serde(default)]
    pub max_image_tokens: u32,
    /// Family of models whose formula counts an image by its size: `gpt-4o`, `gpt-4o-mini`, `gpt-4.1-mini`, `gpt-5`,
    /// `gpt-5-nano`, `gpt-5.2`, `gpt-5.4`, `gpt-5.5`, `claude-4`, `claude-4.7`, `gemini-2` or `gemini-3`. Default: each
    /// image counts as `max_image_tokens`.
    #[serde(default)]
    pub image_family: Option<ImageFamily>,
    /// Whether the model can call tools. Default: `false`.
    #[serde(default)]
    pub supports_tools: bool,
    /// Whether the model accepts images. Default: `false`.
    #[serde(default)]
    pub supports_vision: bool,
    /// Whether a model priced per image receives whole chats instead of the last user message. Default: `false`.
    #[serde(default)]
    pub supports_chat: bool,
    /// Image sizes that the price covers, such as `1024x1024`; the first is the default. Default: any.
    #[serde(default)]
    pub image_sizes: Vec<String>,
    /// Image qualities that the price covers, such as `medium`; the first is the default. Default: any.
    #[serde(default)]
    pub image_qualities: Vec<String>,
    /// Providers of the model: by `weight` first, then in order. Required.
    pub upstreams: Vec<CandidateConfig>,
    /// Order of the providers: `weight`, `price`, `latency` or `load`; requests choose another one by `x-weir-route`.
    /// Default: `weight`.
    #[serde(default)]
    pub route: RouteBy,
    /// Marks of prefixes for the caches of providers that need them, such as Anthropic: `client` for those of the client,
    /// or `auto`, for marks by weir if the client set none. Default: `client`.
    #[serde(default)]
    pub prompt_caching: PromptCaching,
    /// Price at upstreams without a price of their own. Default: each upstream's own.
    #[serde(default)]
    pub price: Option<PriceConfig>,
    /// `first_byte_ms`, `first_token_ms` and `idle_ms` in place of those of the providers. Default: the providers'.
    #[serde(default)]
    pub timeouts: TimeoutOverrides,
}

/// The unit of a model's input, which its price counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputUnit {
    /// A token.
    #[default]
    Token,
    /// A character of a text to speak.
    Character,
    /// A second of a recording.
    Second,
}

/// The order of a model's upstreams for a new conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RouteBy {
    /// By weight, then as in the catalog.
    #[default]
    Weight,
    /// The lowest price of the request first.
    Price,
    /// The shortest time of recent responses first.
    Latency,
    /// The fewest requests under way first.
    Load,
}

impl RouteBy {
    /// All orders and their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("weight", Self::Weight),
        ("price", Self::Price),
        ("latency", Self::Latency),
        ("load", Self::Load),
    ];
}

/// The origin of the marks of prefixes that a provider caches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PromptCaching {
    /// The client sets all.
    #[default]
    Client,
    /// weir sets them in requests without marks.
    Auto,
}

/// One of a model's upstreams.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CandidateConfig {
    /// Name under `[providers]`. Required.
    pub provider: String,
    /// The provider's name for the model. Default: the model's id.
    #[serde(default)]
    pub model: Option<String>,
    /// Options of the adapter for this model, such as `api` or `efforts`, over those of the provider. Default: none.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Price at this provider. Default: the model's price.
    #[serde(default)]
    pub price: Option<PriceConfig>,
    /// Whether weir streams even for plain requests, so that a timeout returns partial text; set it only if the
    /// provider reports usage in streams. Default: `false`.
    #[serde(default)]
    pub stream_plain: bool,
    /// Share of requests: weights 3 and 1 send three in four to the first; a conversation stays with one provider.
    /// Default: none.
    #[serde(default)]
    pub weight: Option<NonZeroU32>,
}

/// A provider's price, in USD: per million tokens, per million characters, per minute, or per image.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceConfig {
    /// Input tokens; not for prices per image, character or minute. Required.
    pub input: Option<NanoUsd>,
    /// Input tokens read from the provider's cache. Default: `input`.
    pub cache_read: Option<NanoUsd>,
    /// Input tokens written to the provider's cache for a short time. Default: `input`.
    pub cache_write_short: Option<NanoUsd>,
    /// Input tokens written to the provider's cache for a long time. Default: `cache_write_short`.
    pub cache_write_long: Option<NanoUsd>,
    /// Output tokens; not for prices per image, character or minute. Required.
    pub output: Option<NanoUsd>,
    /// Input tokens of audio. Default: `input`.
    pub audio_input: Option<NanoUsd>,
    /// Output tokens of audio. Default: `output`.
    pub audio_output: Option<NanoUsd>,
    /// Output tokens of images. Default: `output`.
    pub image_output: Option<NanoUsd>,
    /// One search of the web by the provider, or one search unit of `rerank` (up to 100 documents); weir reserves the
    /// price of as many as the tool's `max_uses`, or else of 10, and sends that limit. At 0, requests with searches of the
    /// web are refused. Default: 0.
    pub search: Option<NanoUsd>,
    /// `{ input_tokens, price }`: another price for requests with more input tokens. Default: none.
    pub above: Option<Box<AboveConfig>>,
    /// One image, instead of prices of tokens. Default: none.
    pub image: Option<NanoUsd>,
    /// A million characters of a text to speak, instead of prices of tokens. Default: none.
    pub characters: Option<NanoUsd>,
    /// One minute of a recording, counted in whole seconds, instead of prices of tokens. Default: none.
    pub minute: Option<NanoUsd>,
}

/// The second set of prices, for long inputs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AboveConfig {
    /// Applies when the input has more tokens than this.
    pub input_tokens: u64,
    /// The prices for such inputs.
    pub price: PriceConfig,
}

/// The units that have the price `characters` or `minute`.
const CHARACTERS_OF_A_PRICE: u32 = 1_000_000;
const SECONDS_OF_A_MINUTE: u32 = 60;

fn yes() -> bool {
    true
}

impl SlotConfig {
    pub fn slot(&self) -> CredentialSlot {
        match self {
            Self::Bearer => CredentialSlot::Bearer,
            Self::Header(name) => CredentialSlot::Header(name.clone()),
            Self::Query(name) => CredentialSlot::Query(name.clone()),
        }
    }
}

impl ProviderConfig {
    pub fn credential_sources(&self) -> impl Iterator<Item = &CredentialSettings> {
        self.credential.iter().chain(&self.credentials)
    }
}

impl ModelConfig {
    /// Returns the price at each upstream that has one.
    pub fn prices(&self) -> impl Iterator<Item = &PriceConfig> {
        let upstreams = self.upstreams.iter();
        upstreams.filter_map(|upstream| upstream.price.as_ref().or(self.price.as_ref()))
    }
}

impl PriceConfig {
    /// Returns the price.
    ///
    /// # Errors
    ///
    /// The missing or superfluous setting, as the end of a sentence.
    pub fn resolve(&self) -> Result<Price, &'static str> {
        let is_of_tokens = !self.fields().is_empty() || self.above.is_some();
        match (self.image, self.of_unit()) {
            (Some(_), _) if is_of_tokens => {
                return Err("has both a price per image and prices per token");
            }
            (None, Some(_)) if is_of_tokens => {
                return Err("has both a price per character or minute and prices per token");
            }
            (Some(_), Some(_)) => return Err("has prices of two kinds"),
            (Some(image), None) => return Ok(Price::Image(image)),
            (None, Some((unit, price, per))) => {
                let unit = match unit {
                    InputUnit::Token => Unit::Tokens,
                    InputUnit::Character => Unit::Characters,
                    InputUnit::Second => Unit::Seconds,
                };
                return Ok(Price::Units { unit, price, per });
            }
            (None, None) => {}
        }
        let above = match &self.above {
            None => None,
            Some(above) if above.price.above.is_some() || above.price.image.is_some() => {
                return Err("has prices inside `above` that are only valid outside it");
            }
            Some(above) => {
                let mut prices = above.price.token_prices()?;
                // Searches do not depend on the input.
                prices.search = above.price.search.or(self.search).unwrap_or(NanoUsd(0));
                Some((above.input_tokens, prices))
            }
        };
        Ok(Price::Text {
            base: self.token_prices()?,
            above,
        })
    }

    pub fn unit(&self) -> InputUnit {
        self.of_unit().map_or(InputUnit::Token, |(unit, _, _)| unit)
    }

    /// Returns the unit of a price per character or minute, the price, and the number of units that have it.
    fn of_unit(&self) -> Option<(InputUnit, NanoUsd, u32)> {
        match (self.characters, self.minute) {
            (Some(price), _) => Some((InputUnit::Character, price, CHARACTERS_OF_A_PRICE)),
            (None, Some(price)) => Some((InputUnit::Second, price, SECONDS_OF_A_MINUTE)),
            (None, None) => None,
        }
    }

    /// Returns the set prices of tokens with their settings' names.
    pub fn fields(&self) -> Vec<(&'static str, NanoUsd)> {
        let all = [
            ("input", self.input),
            ("cache_read", self.cache_read),
            ("cache_write_short", self.cache_write_short),
            ("cache_write_long", self.cache_write_long),
            ("output", self.output),
            ("audio_input", self.audio_input),
            ("audio_output", self.audio_output),
            ("image_output", self.image_output),
            ("search", self.search),
        ];
        let set = all.into_iter();
        set.filter_map(|(name, price)| Some((name, price?)))
            .collect()
    }

    fn token_prices(&self) -> Result<TokenPrices, &'static str> {
        let input = self
            .input
            .ok_or("lacks `input`, the price of a million input tokens")?;
        let output = self
            .output
            .ok_or("lacks `output`, the price of a million output tokens")?;
        let cache_write_short = self.cache_write_short.unwrap_or(input);
        Ok(TokenPrices {
            input,
            cache_read: self.cache_read.unwrap_or(input),
            cache_write_short,
            cache_write_long: self.cache_write_long.unwrap_or(cache_write_short),
            output,
            audio_input: self.audio_input.unwrap_or(input),
            audio_output: self.audio_output.unwrap_or(output),
            image_output: self.image_output.unwrap_or(output),
            search: self.search.unwrap_or(NanoUsd(0)),
        })
    }
}
