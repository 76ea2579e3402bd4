//! What clients can ask for: models, the upstreams that serve them, and prices.
//!
//! The catalog is configuration with a [built-in default](DEFAULT). It is put together at the start, and again when the
//! gateway is told that its configuration has changed ([`live`]): an upstream whose credential is absent is left out, and so is a model that no upstream is
//! left for. One whose adapter is not there yet is left out until that is installed. [`Catalog::build`] reports everything that is wrong at once, by setting.
//!
//! **Invariant:** a model of the catalog can be served: its upstreams have their credentials, and whatever serves in
//! their adapters' slots takes their settings and serves what the model's price is for, chat or images
//! ([`check_adapter`] asks that of a component before it is activated).

pub mod config;
pub mod filters;
pub mod listing;
pub mod live;
pub mod routes;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use figment::Figment;
use figment::providers::{Format, Toml};
use serde::Serialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;
use weir_ledger::Credits;
use weir_ledger::price::{Price, PriceFactors};
use weir_ledger::pricing::{self, Bound};
use weir_plugins::{Component, FilterComponent, Kind, Plugins};
use weir_upstream::redact;
use weir_upstream::{BaseUrl, Upstream, UpstreamTimeouts};

use self::config::{ModelConfig, ProviderConfig};
use self::filters::FilterConfig;
use crate::limits::settings::TimeoutSettings;
use weir_sandbox::ConfigureError;
use weir_sandbox::adapter::bindings::adapter::{CredentialSlot, Description};
use weir_sandbox::adapter::description;
use weir_storage::secrets::SecretSource;

/// The built-in providers and models.
pub const DEFAULT: &str = include_str!("default.toml");

/// Bytes of a provider's name.
const MAX_PROVIDER_BYTES: usize = 64;

/// What the configuration says of providers and models.
#[derive(Debug, Clone, Copy)]
pub struct CatalogSettings<'a> {
    /// Whether the [built-in](DEFAULT) providers and models are among them.
    pub default_catalog: bool,
    /// The upstreams, by name.
    pub providers: &'a BTreeMap<String, ProviderConfig>,
    /// The models, by id.
    pub models: &'a BTreeMap<String, ModelConfig>,
    /// The filters, in the order in which requests go through them.
    pub filters: &'a [FilterConfig],
    /// How long providers may take that do not say so themselves.
    pub timeouts: &'a TimeoutSettings,
    /// What prices are multiplied with.
    pub price_factors: &'a PriceFactors,
    /// Whether clients may know what a model lacks: in development mode, they are who can set it.
    pub tells_what_is_missing: bool,
}

/// The models that can be served, by id.
pub struct Catalog {
    /// Those whose upstreams have their credentials. Their adapters may be missing yet.
    models: BTreeMap<String, Arc<Model>>,
    plugins: Plugins,
    /// All that is configured, what is left out too.
    providers: BTreeMap<String, ProviderConfig>,
    configured: BTreeMap<String, ModelConfig>,
    filters: Vec<FilterConfig>,
    /// What prices are multiplied with.
    pub factors: PriceFactors,
    /// Providers that lack something, for the log.
    pub left_out: Vec<LeftOut>,
    tells_what_is_missing: bool,
}

/// A provider that cannot be used.
#[derive(Debug)]
pub struct LeftOut {
    /// The provider's name under `providers`.
    pub provider: String,
    /// What it lacks.
    pub why: Missing,
    /// The models that nobody else serves.
    pub models: Vec<String>,
}

/// What a provider lacks that is left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Its credential, or a good one, e.g. `the environment variable OPENAI_API_KEY is not set`.
    #[error("{0}")]
    Credential(String),
    /// The adapter in its slot, which may be installed while the gateway runs: the provider then comes in.
    #[error(
        "there is no adapter {0:?}; the provider comes in when one is installed: weir plugin install FILE --slot {0} \
         --activate"
    )]
    Adapter(String),
}

/// A setting that makes no sense.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    /// The setting's path, e.g. `models."gpt-4o".upstreams[0].provider`.
    pub setting: String,
    /// The problem, as a sentence's end.
    pub what: String,
}

/// A model that clients can ask for.
#[derive(Debug)]
pub struct Model {
    /// The name by which clients ask for it.
    pub id: String,
    /// The name that lists show.
    pub name: String,
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
    /// The qualities of images that the price covers; all that there are if empty.
    pub image_qualities: Vec<String>,
    /// The upstreams that serve it, as configured: in order of preference, but for weights; never empty.
    pub candidates: Vec<Candidate>,
}

/// One way to have a model's requests answered.
#[derive(Debug)]
pub struct Candidate {
    /// What it is called where state is kept about it: two models at one provider can fail apart.
    pub key: Arc<str>,
    /// The upstream that answers.
    pub upstream: Arc<Upstream>,
    /// The model's name there.
    pub model: String,
    /// The price there, before the factors.
    pub price: Price,
    /// Whether it may be asked for a stream where the client wants the whole answer: it reports usage in streams.
    pub stream_plain: bool,
    /// Its share of the requests among those candidates that have one.
    pub weight: Option<NonZeroU32>,
}

/// A model as `GET /models` shows it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Model)]
pub struct ModelItem<'a> {
    id: &'a str,
    name: &'a str,
    provider: &'a str,
    context_window: u32,
    max_output_tokens: u32,
    cost_per_1k_input: f64,
    cost_per_1k_output: f64,
    /// Credits, of a model that makes images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    cost_per_image: Option<Credits>,
    supports_tools: bool,
    supports_vision: bool,
}

impl Catalog {
    /// Puts the catalog together, or says everything that is wrong with its configuration.
    pub fn build(
        settings: CatalogSettings<'_>,
        plugins: &Plugins,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<Problem>> {
        let mut builder = Builder {
            settings,
            plugins,
            environment,
            problems: Vec::new(),
        };
        let mut upstreams = BTreeMap::new();
        let mut left_out = Vec::new();
        for (name, provider) in settings.providers {
            let problems_before = builder.problems.len();
            let upstream = builder.upstream(name, provider);
            builder.name_origin(problems_before, "providers", name);
            let missing = match upstream {
                None => None,
                Some(Err(why)) => Some(Missing::Credential(why)),
                Some(Ok(upstream)) => {
                    let slot = &upstream.adapter;
                    let has_slot = plugins.has_slot_of(Kind::Adapter, slot);
                    let missing = (!has_slot).then(|| Missing::Adapter(slot.clone()));
                    upstreams.insert(name.as_str(), Arc::new(upstream));
                    missing
                }
            };
            left_out.extend(missing.map(|why| LeftOut {
                provider: name.clone(),
                why,
                models: Vec::new(),
            }));
        }
        let mut models = BTreeMap::new();
        for (id, model) in settings.models {
            let problems_before = builder.problems.len();
            let model = builder.model(id, model, &upstreams);
            builder.name_origin(problems_before, "models", id);
            let Some(model) = model else {
                continue;
            };
            if !is_served(&model, plugins)
                && let Some(left_out) = left_out
                    .iter_mut()
                    .find(|left_out| settings.models[id].upstreams[0].provider == left_out.provider)
            {
                left_out.models.push(id.clone());
            }
            if !model.candidates.is_empty() {
                models.insert(id.clone(), Arc::new(model));
            }
        }
        let missing = filters::problems(settings.filters, settings.models);
        builder.problems.extend(missing);
        if !builder.problems.is_empty() {
            return Err(builder.problems);
        }
        Ok(Self {
            models,
            plugins: plugins.clone(),
            providers: settings.providers.clone(),
            configured: settings.models.clone(),
            filters: settings.filters.to_vec(),
            factors: settings.price_factors.clone(),
            left_out,
            tells_what_is_missing: settings.tells_what_is_missing,
        })
    }

    /// What requests go through before they are routed, in this order.
    pub fn filters(&self) -> &[FilterConfig] {
        &self.filters
    }

    /// How to bring in a model that is configured and lacks its providers' credentials, as a sentence for whoever may know that.
    pub fn remedy(&self, id: &str) -> Option<String> {
        let configured = self.configured.get(id);
        let configured = configured.filter(|_| self.tells_what_is_missing)?;
        let mut variables = configured.upstreams.iter().filter_map(|upstream| {
            let left_out = self.left_out.iter();
            let mut lacking = left_out.filter(|left_out| {
                left_out.provider == upstream.provider
                    && matches!(left_out.why, Missing::Credential(_))
            });
            let provider = self.providers.get(&lacking.next()?.provider)?;
            match provider.credential.as_ref()? {
                SecretSource::Env(variable) => Some(variable.as_str()),
                SecretSource::File(_) => None,
            }
        });
        let variable = variables.next()?;
        Some(format!(
            "Set the environment variable {variable} and start weir again to have it."
        ))
    }

    /// The model with this id, if an adapter for it is there by now.
    pub fn model(&self, id: &str) -> Option<&Arc<Model>> {
        let model = self.models.get(id);
        model.filter(|model| is_served(model, &self.plugins))
    }

    /// All models that an adapter is there for by now, by id.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        let models = self.models.values().map(|model| &**model);
        models.filter(|model| is_served(model, &self.plugins))
    }

    /// The keys of all [candidates](Candidate) that models have.
    pub fn candidate_keys(&self) -> Vec<Arc<str>> {
        let candidates = self.models.values().flat_map(|model| &model.candidates);
        let mut keys: Vec<_> = candidates.map(|candidate| candidate.key.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The upstreams that models have, by name.
    pub fn upstreams(&self) -> BTreeMap<&str, &Upstream> {
        let candidates = self.models.values().flat_map(|model| &model.candidates);
        let upstreams = candidates.map(|candidate| &*candidate.upstream);
        upstreams
            .map(|upstream| (&*upstream.name, upstream))
            .collect()
    }
}

/// Whether the slot of an upstream's adapter is there, whatever serves in it.
fn is_served(model: &Model, plugins: &Plugins) -> bool {
    let mut candidates = model.candidates.iter();
    candidates.any(|candidate| plugins.has_slot_of(Kind::Adapter, &candidate.upstream.adapter))
}

impl Model {
    /// Whether it makes images, and is priced by them.
    pub fn makes_images(&self) -> bool {
        matches!(self.candidates[0].price, Price::Image(_))
    }

    /// The model as `GET /models` shows it; the preferred upstream gives provider and prices.
    pub fn item(&self, factors: &PriceFactors) -> ModelItem<'_> {
        let preferred = &self.candidates[0];
        let (input, output) = match &preferred.price {
            Price::Text { base, .. } => (
                base.input.credits_per_1k(factors.text),
                base.output.credits_per_1k(factors.text),
            ),
            // Priced per image: tokens cost nothing.
            Price::Image(_) => (0.0, 0.0),
        };
        ModelItem {
            id: &self.id,
            name: &self.name,
            provider: &preferred.upstream.name,
            context_window: self.context_window,
            max_output_tokens: self.max_output_tokens,
            cost_per_1k_input: input,
            cost_per_1k_output: output,
            cost_per_image: self.makes_images().then(|| {
                let one = Bound {
                    input_tokens: 0,
                    output_tokens: 0,
                    images: 1,
                };
                pricing::worst_case(&preferred.price, factors, &one)
            }),
            supports_tools: self.supports_tools,
            supports_vision: self.supports_vision,
        }
    }
}

/// What is wrong with a component in a slot of this gateway, if anything is: settings of providers that use the slot
/// which it does not take, and models that it would not serve.
pub async fn check_adapter(catalog: &Catalog, slot: &str, component: &Component) -> Vec<Problem> {
    let description = &component.description;
    let mut problems = Vec::new();
    let users = catalog
        .providers
        .iter()
        .filter(|(_, provider)| provider.adapter == slot);
    for (name, provider) in users {
        problems.extend(provider_problems(name, provider, description));
        problems.extend(option_problem(name, provider, component).await);
        for (id, model) in &catalog.configured {
            for (index, upstream) in model.upstreams.iter().enumerate() {
                let price = upstream.price.as_ref().or(model.price.as_ref());
                let Some(Ok(price)) = price.map(|price| price.resolve()) else {
                    continue;
                };
                if upstream.provider == *name && !serves(description, &price) {
                    problems.push(other_kind(id, index, slot));
                }
            }
        }
    }
    problems
}

/// What a component refuses of the options of this gateway's filters.
pub async fn check_filter(
    catalog: &Catalog,
    slot: &str,
    component: &FilterComponent,
) -> Vec<Problem> {
    filters::option_problems(&catalog.filters, slot, component).await
}

/// What an adapter does not take of a provider's settings.
fn provider_problems(
    name: &str,
    provider: &ProviderConfig,
    description: &Description,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |setting: String, what: String| {
        problems.push(Problem {
            setting: format!("providers.{name}.{setting}"),
            what,
        });
    };
    for option in provider.options.keys() {
        if !description.options.contains(option) {
            let known = description.options.join(", ");
            problem(
                format!("options.{option}"),
                format!(
                    "the adapter {:?} has no such option; it has: {known}",
                    provider.adapter
                ),
            );
        }
    }
    let answers_by_itself = matches!(description.credential, CredentialSlot::None);
    if !answers_by_itself && provider.base_url.is_none() {
        problem("base_url".into(), "is missing".into());
    }
    if let Some(base_url) = &provider.base_url {
        let base_url = base_url.trim_end_matches('/');
        let mut paths = description.path_prefixes.iter();
        // What it sends goes there, appended: to …/chat/completions/chat/completions.
        if let Some(path) = paths.find(|path| path.len() > 1 && base_url.ends_with(path.as_str())) {
            let what = format!("ends in {path}, which the adapter appends itself: leave that out");
            problem("base_url".into(), what);
        }
    }
    if answers_by_itself && provider.credential.is_some() {
        problem(
            "credential".into(),
            format!("the adapter {:?} takes none", provider.adapter),
        );
    }
    problems
}

/// What an adapter refuses of a provider's options when it reads their values.
async fn option_problem(
    name: &str,
    provider: &ProviderConfig,
    component: &Component,
) -> Option<Problem> {
    let known = &component.description.options;
    if provider
        .options
        .keys()
        .any(|option| !known.contains(option))
    {
        // That it has no such option is said already.
        return None;
    }
    let options = Vec::from_iter(provider.options.clone());
    let (setting, what) = match component.configuration(&options).await.err()? {
        ConfigureError::Refused { name, why } => (format!("options.{name}"), why),
        error => ("options".to_owned(), format!("cannot be read: {error}")),
    };
    Some(Problem {
        setting: format!("providers.{name}.{setting}"),
        what,
    })
}

/// What serving adapters refuse of their providers' options. Where operators see to a slot, it is for the log alone: a
/// gateway that does not start is one in which nobody can activate another.
pub async fn check_options(
    providers: &BTreeMap<String, ProviderConfig>,
    plugins: &Plugins,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, provider) in providers {
        let Some(component) = plugins.adapter(&provider.adapter) else {
            continue;
        };
        let Some(problem) = option_problem(name, provider, &component).await else {
            continue;
        };
        if plugins.is_operated(&provider.adapter) {
            let Problem { setting, what } = problem;
            tracing::error!(
                setting,
                "what serves does not fit the configuration: {what}"
            );
        } else {
            problems.push(problem);
        }
    }
    problems
}

fn serves(description: &Description, price: &Price) -> bool {
    let capability = match price {
        Price::Text { .. } => description::CHAT,
        Price::Image(_) => description::IMAGES,
    };
    description
        .capabilities
        .iter()
        .any(|named| named == capability)
}

fn other_kind(id: &str, upstream: usize, slot: &str) -> Problem {
    Problem {
        setting: format!("models.{id:?}.upstreams[{upstream}]"),
        what: format!("the adapter {slot:?} does not serve this kind of model"),
    }
}

struct Builder<'a, E> {
    settings: CatalogSettings<'a>,
    plugins: &'a Plugins,
    environment: E,
    problems: Vec<Problem>,
}

impl<E: Fn(&str) -> Option<String>> Builder<'_, E> {
    fn problem(&mut self, setting: String, what: impl Into<String>) {
        self.problems.push(Problem {
            setting,
            what: what.into(),
        });
    }

    /// Adds to the latest problems that what they are about is not in the file alone.
    fn name_origin(&mut self, problems_before: usize, table: &str, name: &str) {
        let latest = &mut self.problems[problems_before..];
        if !latest.is_empty() && self.settings.default_catalog && is_built_in(table, name) {
            for problem in latest {
                problem
                    .what
                    .push_str(" (it is built in, and overridden field by field)");
            }
        }
    }

    /// The upstream; the inner error says which credential is missing, `None` that there is a problem.
    fn upstream(
        &mut self,
        name: &str,
        provider: &ProviderConfig,
    ) -> Option<Result<Upstream, String>> {
        let setting = format!("providers.{name}");
        let problems_before = self.problems.len();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=MAX_PROVIDER_BYTES).contains(&name.len()) || !name.bytes().all(is_name) {
            // It stands in headers and metrics.
            let what =
                format!("is named by 1 to {MAX_PROVIDER_BYTES} letters, digits, `-`, `_` and `.`");
            self.problem(setting.clone(), what);
        }
        self.check_slot(name, provider);
        let base = match provider.base_url.as_deref().map(BaseUrl::parse) {
            None => None,
            Some(Ok(base)) => Some(base),
            Some(Err(what)) => {
                self.problem(format!("{setting}.base_url"), what);
                None
            }
        };
        if self.problems.len() > problems_before {
            return None;
        }
        let credential = match &provider.credential {
            None => None,
            Some(source) => match source.read(&self.environment) {
                Ok(credential) => Some(credential),
                Err(why) => return Some(Err(why)),
            },
        };
        if credential
            .as_ref()
            .is_some_and(|credential| credential.expose().len() < redact::MIN_BYTES)
        {
            return Some(Err(format!(
                "its credential has fewer than {} bytes: blotting it out of answers would blot out words, too; give the \
                 provider a longer one, or leave `credential` out if it needs none",
                redact::MIN_BYTES
            )));
        }
        if let Some(credential) = &credential
            && http::HeaderValue::from_str(credential.expose()).is_err()
        {
            self.problem(
                format!("{setting}.credential"),
                "holds characters that cannot be sent",
            );
            return None;
        }
        let (own, defaults) = (&provider.timeouts, self.settings.timeouts);
        Some(Ok(Upstream {
            name: name.to_owned(),
            base,
            credential,
            options: provider.options.clone().into_iter().collect(),
            timeouts: UpstreamTimeouts::from_millis(
                own.first_byte_ms.unwrap_or(defaults.first_byte_ms),
                own.first_token_ms.unwrap_or(defaults.first_token_ms),
                own.idle_ms.unwrap_or(defaults.idle_ms),
            ),
            adapter: provider.adapter.clone(),
        }))
    }

    /// Whether the provider's adapter takes its settings. One that is not there, or does not serve now, is asked when
    /// it is activated.
    fn check_slot(&mut self, name: &str, provider: &ProviderConfig) {
        let Some(adapter) = self.plugins.adapter(&provider.adapter) else {
            return;
        };
        let problems = provider_problems(name, provider, &adapter.description);
        if self.plugins.is_operated(&provider.adapter) {
            // A gateway that does not start is one in which nobody can activate another.
            for Problem { setting, what } in problems {
                tracing::error!(
                    setting,
                    "what serves does not fit the configuration: {what}"
                );
            }
        } else {
            self.problems.extend(problems);
        }
    }

    fn serves(&self, slot: &str, price: &Price) -> bool {
        self.plugins.is_operated(slot)
            || self
                .plugins
                .adapter(slot)
                .is_none_or(|adapter| serves(&adapter.description, price))
    }

    fn model(
        &mut self,
        id: &str,
        model: &ModelConfig,
        upstreams: &BTreeMap<&str, Arc<Upstream>>,
    ) -> Option<Model> {
        let setting = format!("models.{id:?}");
        let problems_before = self.problems.len();
        if id.is_empty() || id.len() > 256 || id.chars().any(char::is_control) {
            self.problem(
                setting.clone(),
                "an id has 1 to 256 bytes and no control characters",
            );
        }
        if model.default_output_tokens == 0 {
            self.problem(
                format!("{setting}.default_output_tokens"),
                "must be at least 1",
            );
        }
        if model.default_output_tokens > model.max_output_tokens {
            self.problem(
                format!("{setting}.default_output_tokens"),
                "is more than max_output_tokens",
            );
        }
        if model.max_output_tokens > model.context_window {
            self.problem(
                format!("{setting}.max_output_tokens"),
                "is more than context_window",
            );
        }
        if model.upstreams.is_empty() {
            self.problem(format!("{setting}.upstreams"), "names nobody who serves it");
        }
        let mut candidates = Vec::new();
        for (index, candidate) in model.upstreams.iter().enumerate() {
            let setting = format!("{setting}.upstreams[{index}]");
            if !self.settings.providers.contains_key(&candidate.provider) {
                self.problem(
                    format!("{setting}.provider"),
                    format!("there is no provider {:?}", candidate.provider),
                );
                continue;
            }
            let price = match candidate.price.as_ref().or(model.price.as_ref()) {
                None => Err("is missing: neither the model nor this upstream has one"),
                Some(price) => price.resolve(),
            };
            let price = match price {
                Ok(price) => price,
                Err(what) => {
                    self.problem(format!("{setting}.price"), what);
                    continue;
                }
            };
            if let Some(upstream) = upstreams.get(candidate.provider.as_str()) {
                if !self.serves(&upstream.adapter, &price) {
                    self.problems.push(other_kind(id, index, &upstream.adapter));
                    continue;
                }
                let model = candidate.model.clone().unwrap_or_else(|| id.to_owned());
                candidates.push(Candidate {
                    // A provider's name has no slash.
                    key: format!("{}/{model}", upstream.name).into(),
                    upstream: upstream.clone(),
                    model,
                    price,
                    stream_plain: candidate.stream_plain,
                    weight: candidate.weight,
                });
            }
        }
        let makes_images = |candidate: &Candidate| matches!(candidate.price, Price::Image(_));
        let images = candidates.iter().filter(|one| makes_images(one)).count();
        if images > 0 && images < candidates.len() {
            let what = "are priced per image and per token: a model is one or the other";
            self.problem(format!("{setting}.upstreams"), what);
        }
        (self.problems.len() == problems_before).then(|| Model {
            id: id.to_owned(),
            name: model.name.clone().unwrap_or_else(|| id.to_owned()),
            context_window: model.context_window,
            max_output_tokens: model.max_output_tokens,
            default_output_tokens: model.default_output_tokens,
            max_image_tokens: model.max_image_tokens,
            supports_tools: model.supports_tools,
            supports_vision: model.supports_vision,
            supports_chat: model.supports_chat,
            image_sizes: model.image_sizes.clone(),
            image_qualities: model.image_qualities.clone(),
            candidates,
        })
    }
}

/// Whether the built-in catalog has an entry of this name in `providers` or `models`.
fn is_built_in(table: &str, name: &str) -> bool {
    let built_in =
        Figment::from(Toml::string(DEFAULT)).extract_inner::<BTreeMap<String, IgnoredAny>>(table);
    built_in.is_ok_and(|entries| entries.contains_key(name))
}
