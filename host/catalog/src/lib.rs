//! The catalog: models for clients, their upstreams, and prices.
//!
//! The catalog is configuration with a [built-in default](DEFAULT). weir builds it at the start and at each reload
//! ([`live`]). It leaves out upstreams without a credential, and models without a remaining upstream. An upstream
//! without an adapter stays left out until the adapter is installed. [`Catalog::build`] reports all errors at once, by
//! setting.
//!
//! **Invariant:** weir can serve each model of the catalog: its upstreams have their credentials, and the active
//! components in their adapters' slots accept their settings and serve the kind of the model
//! ([`check_adapter`] verifies this before a component is activated).
//!
//! Administrators change the catalog by a [`layer`] over the configuration.

pub mod aliases;
pub mod config;
pub mod data_terms;
pub mod end_date;
pub mod filter_service;
pub mod filters;
pub mod kinds;
pub mod layer;
pub mod listing;
pub mod live;
pub mod permitted;
pub mod plans;
mod problem;
pub mod routes;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use figment::Figment;
use figment::providers::{Format, Toml};
use serde::Serialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;
use weir_kinds::ModelTerms;
use weir_ledger::price::{Price, PriceFactors};
use weir_ledger::pricing::{self, UsageBound};
use weir_ledger::{Credits, Plan, Unit};
use weir_plugins::{Component, FilterComponent, PluginKind, Plugins};
use weir_request::limits::settings::TimeoutSettings;
use weir_sandbox::ConfigureError;
use weir_sandbox::adapter::bindings::adapter::{CredentialSlot, Description, Setting};
use weir_sandbox::adapter::{WorkKind, description};
use weir_storage::clock::Millis;
use weir_tools::settings::CredentialSettings;
use weir_upstream::image_tokens::{ImageCounting, ImageFamily};
use weir_upstream::redact;
use weir_upstream::{BaseUrl, Upstream, UpstreamTimeouts};

use self::config::{
    CandidateConfig, InputUnit, ModelConfig, PriceConfig, PromptCaching, ProviderConfig, RouteBy,
    SlotConfig, TimeoutOverrides,
};
use self::data_terms::DataTerms;
use self::end_date::EndDate;
use self::filter_service::FilterService;
use self::filters::FilterConfig;
use self::kinds::KindOutput;
use self::plans::PlanTerms;
pub use self::problem::Problem;

/// The built-in providers and models.
pub const DEFAULT: &str = include_str!("default.toml");

/// The tokens that have the prices `input` and `output`.
const TOKENS_OF_A_PRICE: u32 = 1_000_000;

/// Maximum bytes of a provider's name.
const MAX_PROVIDER_BYTES: usize = 64;

/// The configuration of providers and models.
#[derive(Debug, Clone, Copy)]
pub struct CatalogSettings<'a> {
    /// Whether the [built-in](DEFAULT) providers and models are included.
    pub default_catalog: bool,
    /// The upstreams, by name.
    pub providers: &'a BTreeMap<String, ProviderConfig>,
    /// The models, by id.
    pub models: &'a BTreeMap<String, ModelConfig>,
    /// The filters, in their order of execution.
    pub filters: &'a [FilterConfig],
    /// The credentials of filters' services, by name.
    pub credentials: &'a BTreeMap<String, CredentialSettings>,
    /// Timeouts of providers without their own.
    pub timeouts: &'a TimeoutSettings,
    pub price_factors: &'a PriceFactors,
    /// The models and the factor of each plan.
    pub plans: &'a PlanTerms,
    /// Whether errors tell clients how to add a missing model: in development mode, the client is the developer.
    pub tells_what_is_missing: bool,
}

/// The models that weir can serve, by id.
pub struct Catalog {
    /// Models whose upstreams have their credentials. Their adapters may still be missing.
    models: BTreeMap<String, Arc<Model>>,
    /// Ids of all configured models, by alias.
    aliases: BTreeMap<String, String>,
    plugins: Plugins,
    /// All configured providers, including those that are left out.
    providers: BTreeMap<String, ProviderConfig>,
    configured: BTreeMap<String, ModelConfig>,
    filters: Vec<FilterConfig>,
    /// The services of the filters, in the same order.
    services: Vec<Option<FilterService>>,
    /// Factors on prices, without a plan's.
    pub factors: PriceFactors,
    plans: PlanTerms,
    /// Providers that are left out, for the log.
    pub left_out: Vec<OmittedProvider>,
    tells_what_is_missing: bool,
    /// The version of its layer; 0 without a layer.
    pub layer_version: i64,
}

/// A provider that is left out.
#[derive(Debug)]
pub struct OmittedProvider {
    /// The provider's name under `providers`.
    pub provider: String,
    pub why: MissingPart,
    /// The models that no other provider serves.
    pub models: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MissingPart {
    /// A credential, e.g. `the environment variable OPENAI_API_KEY is not set`.
    #[error("{0}")]
    Unset(String),
    /// A usable credential: the configured one is unreadable, empty or too short.
    #[error("{0}")]
    Credential(String),
    /// The permission to use it: `enabled` is `false`.
    #[error("it is disabled")]
    Enabled,
    /// The adapter in its slot. An operator may install it while the gateway runs: the provider then becomes available.
    #[error(
        "the adapter {0:?} is not installed; the provider becomes available after: weir plugin install FILE --slot {0} \
         --activate"
    )]
    Adapter(String),
}

impl OmittedProvider {
    fn lacks_credential(&self) -> bool {
        matches!(self.why, MissingPart::Unset(_) | MissingPart::Credential(_))
    }
}

/// A model that clients can request.
#[derive(Debug)]
pub struct Model {
    /// The model's name in requests.
    pub id: String,
    /// The name that lists show.
    pub name: String,
    /// Other names in requests.
    pub aliases: Vec<String>,
    /// The day on which the provider ends the model.
    pub ends_on: Option<EndDate>,
    /// The kind of its requests.
    pub kind: WorkKind,
    /// The unit of its input.
    pub unit: InputUnit,
    /// Tokens of input and output together; of one text or document, or units of input, unless it is a model for chats or
    /// images.
    pub context_window: u32,
    /// The largest output limit, in tokens.
    pub max_output_tokens: u32,
    /// The output limit for requests without one, in tokens.
    pub default_output_tokens: u32,
    /// Maximum tokens of one input image.
    pub max_image_tokens: u32,
    /// The family whose formula counts an image by its size.
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
    /// The order of its upstreams.
    pub route: RouteBy,
    /// The origin of marks of cached prefixes.
    pub prompt_caching: PromptCaching,
    /// The model's upstreams as configured: in order of preference, except for weights; never empty.
    pub candidates: Vec<Candidate>,
}

/// A model at one upstream.
#[derive(Debug)]
pub struct Candidate {
    /// The upstream with each of its credentials; never empty.
    pub pool: Vec<PoolMember>,
    /// The model's name at the upstream.
    pub model: String,
    /// Options of the adapter: the provider's, and the model's own over them.
    pub options: Vec<Setting>,
    /// The price at the upstream, before the factors.
    pub price: Price,
    /// Whether weir streams from the upstream even for plain requests: the upstream reports usage in streams.
    pub stream_plain: bool,
    /// The share of requests among the candidates with a weight.
    pub weight: Option<NonZeroU32>,
    /// The terms of its provider.
    pub data_terms: DataTerms,
    /// Time limits: the model's, else the provider's, else those of `[timeouts]`.
    pub timeouts: UpstreamTimeouts,
}

/// A candidate with one of its provider's credentials.
#[derive(Debug)]
pub struct PoolMember {
    /// The key of its state, such as breakers: two models or two credentials at one provider can fail separately.
    pub key: Arc<str>,
    /// The place of the credential in the provider's list; 1 is the first.
    pub credential: usize,
    /// The upstream with this credential.
    pub upstream: Arc<Upstream>,
}

/// A model in the response of `GET /models`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Model)]
pub struct ModelItem<'a> {
    id: &'a str,
    name: &'a str,
    provider: &'a str,
    kind: WorkKind,
    context_window: u32,
    max_output_tokens: u32,
    /// The unit of the input. The price `cost_per_1k_input` is for a thousand of them.
    input_unit: InputUnit,
    /// Credits for a thousand units of input.
    pub cost_per_1k_input: f64,
    /// Credits for a thousand tokens of output.
    pub cost_per_1k_output: f64,
    /// Credits, for an image model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    cost_per_image: Option<Credits>,
    supports_tools: bool,
    supports_vision: bool,
    /// Whether the plan's credits pay for it; otherwise, only bought credits do.
    pub in_plan: bool,
}

impl Catalog {
    /// Builds the catalog, or returns all errors of its configuration.
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
        let served: BTreeMap<_, _> = settings
            .models
            .iter()
            .filter(|(_, model)| model.enabled)
            .collect();
        let mut upstreams = BTreeMap::new();
        let mut left_out = Vec::new();
        for (name, provider) in settings.providers {
            let problems_before = builder.problems.len();
            let upstream = builder.upstream(name, provider);
            builder.name_origin(problems_before, "providers", name);
            let missing = match upstream {
                None => None,
                Some(Ok(_)) if !provider.enabled => Some(MissingPart::Enabled),
                Some(Err(missing)) => Some(missing),
                Some(Ok(pool)) => {
                    let slot = &provider.adapter;
                    let has_slot = plugins.has_slot_of(PluginKind::Adapter, slot);
                    let missing = (!has_slot).then(|| MissingPart::Adapter(slot.clone()));
                    upstreams.insert(name.as_str(), pool);
                    missing
                }
            };
            left_out.extend(missing.map(|why| OmittedProvider {
                provider: name.clone(),
                why,
                models: Vec::new(),
            }));
        }
        let mut models = BTreeMap::new();
        for (&id, &model) in &served {
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
        let (aliases, ambiguous) = aliases::by_alias(&served);
        builder.problems.extend(ambiguous);
        let missing = filters::problems(settings.filters, settings.models);
        builder.problems.extend(missing);
        let unknown = plans::problems(settings.plans, settings.models);
        builder.problems.extend(unknown);
        let services =
            filters::services(settings.filters, settings.credentials, &builder.environment);
        let services = services.unwrap_or_else(|wrong| {
            builder.problems.extend(wrong);
            Vec::new()
        });
        if !builder.problems.is_empty() {
            return Err(builder.problems);
        }
        Ok(Self {
            models,
            aliases,
            plugins: plugins.clone(),
            providers: settings.providers.clone(),
            configured: settings.models.clone(),
            filters: settings.filters.to_vec(),
            services,
            factors: settings.price_factors.clone(),
            plans: settings.plans.clone(),
            left_out,
            tells_what_is_missing: settings.tells_what_is_missing,
            layer_version: 0,
        })
    }

    /// Returns the factors on prices for an account with a plan.
    pub fn factors_of(&self, plan: Plan) -> PriceFactors {
        plans::factors(&self.plans, plan, &self.factors)
    }

    /// Returns the highest factors on prices of all plans.
    pub fn highest_factors(&self) -> PriceFactors {
        let all = Plan::ALL.into_iter().map(|plan| self.factors_of(plan));
        let highest = all.max_by_key(|factors| factors.text.0);
        highest.unwrap_or_else(|| self.factors.clone())
    }

    pub fn has_models_of_plans(&self) -> bool {
        self.plans.values().any(|terms| terms.models.is_some())
    }

    /// Returns whether a plan's credits pay for a model. Otherwise, only bought credits do.
    pub fn is_in_plan(&self, plan: Plan, model: &str) -> bool {
        plans::includes(&self.plans, plan, self.id_of(model))
    }

    /// Returns the filters of requests before routing, in order, with their services.
    pub fn filters(&self) -> impl Iterator<Item = (&FilterConfig, Option<&FilterService>)> {
        let services = self.services.iter().map(Option::as_ref);
        self.filters.iter().zip(services)
    }

    /// Returns a sentence that explains how to add a configured model without its providers' credentials, for a reader
    /// who may know that.
    pub fn remedy(&self, id: &str) -> Option<String> {
        let configured = self.configured.get(self.id_of(id));
        let configured = configured.filter(|_| self.tells_what_is_missing)?;
        let mut variables = configured.upstreams.iter().filter_map(|upstream| {
            let left_out = self.left_out.iter();
            let mut lacking = left_out.filter(|left_out| {
                left_out.provider == upstream.provider && left_out.lacks_credential()
            });
            let left_out = lacking.next()?;
            let provider = self.providers.get(&left_out.provider)?;
            let variable = provider.credential_sources().next()?.variable()?;
            Some((variable, left_out))
        });
        let (variable, left_out) = variables.next()?;
        Some(match &left_out.why {
            MissingPart::Credential(why) => format!(
                "The environment variable {variable} is set, but the provider {} is left out: {why}.",
                left_out.provider
            ),
            _ => format!(
                "Set the environment variable {variable} and restart weir to add the model."
            ),
        })
    }

    /// Returns the secrets that an earlier catalog has and this one lacks, although the configuration still names them: a
    /// file is missing, empty or half written.
    pub fn lost_secrets(&self, before: &Self) -> Vec<Problem> {
        let lost_providers = self.left_out.iter().filter_map(|left_out| {
            let (MissingPart::Unset(why) | MissingPart::Credential(why)) = &left_out.why else {
                return None;
            };
            let provider = self.providers.get(&left_out.provider)?;
            // Without its entry in the file, only the built-in provider remains.
            let is_removed =
                matches!(left_out.why, MissingPart::Unset(_)) && is_as_built_in(left_out, provider);
            let is_lost =
                provider.enabled && !is_removed && before.has_credential(&left_out.provider);
            is_lost.then(|| Problem {
                setting: format!("providers.{}", left_out.provider),
                what: format!("has lost its credential: {why}"),
            })
        });
        let services = |catalog: &Self| -> BTreeMap<String, Result<(), String>> {
            let services = catalog.filters();
            services
                .filter_map(|(config, service)| {
                    let name = config.service.as_ref()?.credential.clone()?;
                    Some((name, service?.secret()))
                })
                .collect()
        };
        let services_before = services(before);
        let lost_services = services(self).into_iter().filter_map(|(name, secret)| {
            let is_lost = services_before.get(&name).is_some_and(Result::is_ok);
            secret.err().filter(|_| is_lost).map(|why| Problem {
                setting: format!("credentials.{name}"),
                what: format!("has lost its secret: {why}"),
            })
        });
        lost_providers.chain(lost_services).collect()
    }

    /// Returns whether a provider is configured and has its credential.
    fn has_credential(&self, provider: &str) -> bool {
        let mut left_out = self.left_out.iter();
        let lacks_it = |left_out: &OmittedProvider| {
            left_out.provider == provider && left_out.lacks_credential()
        };
        self.providers.contains_key(provider) && !left_out.any(lacks_it)
    }

    /// Returns whether a model that is not served has a disabled provider.
    pub fn is_disabled_at_providers(&self, name: &str) -> bool {
        let configured = self.configured.get(self.id_of(name));
        let upstreams = configured.filter(|model| model.enabled);
        let mut upstreams = upstreams.iter().flat_map(|model| &model.upstreams);
        upstreams.any(|upstream| {
            let provider = self.providers.get(&upstream.provider);
            provider.is_some_and(|provider| !provider.enabled)
        })
    }

    /// Returns the id of the model with this alias, or the name itself if it is no alias.
    pub fn id_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.get(name).map_or(name, String::as_str)
    }

    /// Returns the model with this id or alias if its adapter exists.
    pub fn model(&self, name: &str) -> Option<&Arc<Model>> {
        let model = self.models.get(self.id_of(name));
        model.filter(|model| is_served(model, &self.plugins))
    }

    /// Returns the kind of each configured model, by its id and its aliases, and the unit of its price.
    pub fn model_kinds(&self) -> Vec<(String, &'static str, Unit)> {
        let mut kinds = Vec::new();
        for (id, model) in &self.configured {
            let price = model.prices().find_map(|price| price.resolve().ok());
            let Some(price) = price.map(|price| kinds::price_of(model.kind, price)) else {
                continue;
            };
            for name in model.aliases.iter().chain([id]) {
                kinds.push((name.clone(), model.kind.name(), price.unit()));
            }
        }
        kinds
    }

    /// Returns all models with an existing adapter, by id.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        let models = self.models.values().map(|model| &**model);
        models.filter(|model| is_served(model, &self.plugins))
    }

    /// Returns the names of all configured providers.
    pub fn provider_names(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }

    /// Returns each model at each of its upstreams.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.models.values().flat_map(|model| &model.candidates)
    }

    /// Returns the keys of all [candidates](Candidate) with each credential.
    pub fn candidate_keys(&self) -> Vec<Arc<str>> {
        let members = self.candidates().flat_map(|candidate| &candidate.pool);
        let mut keys: Vec<_> = members.map(|member| member.key.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns the models' upstreams, by name.
    pub fn upstreams(&self) -> BTreeMap<&str, &Upstream> {
        let upstreams = self.candidates().map(Candidate::upstream);
        upstreams
            .map(|upstream| (&*upstream.name, upstream))
            .collect()
    }
}

impl Candidate {
    /// Returns the upstream, with the first of its credentials.
    pub fn upstream(&self) -> &Upstream {
        &self.pool[0].upstream
    }

    /// Returns the number of a member's credential, from 1; `None` without one.
    pub fn credential_number(&self, member: &PoolMember) -> Option<u32> {
        member.upstream.credential.as_ref()?;
        let mut pool = self.pool.iter();
        let index = pool.position(|other| std::ptr::eq(other, member))?;
        u32::try_from(index + 1).ok()
    }
}

impl PoolMember {
    fn new(index: usize, upstream: &Arc<Upstream>, model: &str) -> Self {
        let name = &upstream.name;
        // A provider's name has neither a slash nor a `#`.
        let key = match index {
            0 => format!("{name}/{model}"),
            _ => format!("{name}#{}/{model}", index + 1),
        };
        Self {
            key: key.into(),
            credential: index + 1,
            upstream: upstream.clone(),
        }
    }
}

/// Returns whether the slot of an upstream's adapter exists, with any component.
fn is_served(model: &Model, plugins: &Plugins) -> bool {
    let mut candidates = model.candidates.iter();
    candidates
        .any(|candidate| plugins.has_slot_of(PluginKind::Adapter, &candidate.upstream().adapter))
}

impl Model {
    /// Returns a warning if the provider has ended the model, or ends it soon.
    pub fn end_warning(&self, now: Millis) -> Option<String> {
        self.ends_on?.warning(&self.id, now)
    }

    /// Returns how the model counts the images of a request.
    pub fn image_counting(&self) -> ImageCounting {
        ImageCounting {
            family: self.image_family,
            max_tokens: self.max_image_tokens.into(),
        }
    }

    /// Returns its limits for requests of other kinds than chats.
    pub fn terms(&self) -> ModelTerms<'_> {
        ModelTerms {
            id: &self.id,
            context_window: self.context_window,
            max_output_tokens: self.max_output_tokens,
            price_unit: self.price_unit(),
        }
    }

    /// Returns whether the model is an image model, priced per image.
    pub fn makes_images(&self) -> bool {
        matches!(self.candidates[0].price, Price::Image(_))
    }

    /// Returns the unit in which its price counts. Upstreams may differ for rankings only.
    pub fn price_unit(&self) -> Unit {
        self.candidates[0].price.unit()
    }

    /// Returns the model for `GET /models`; its preferred upstream gives provider and prices.
    pub fn item<'a>(
        &'a self,
        preferred: &'a Candidate,
        factors: &PriceFactors,
        in_plan: bool,
    ) -> ModelItem<'a> {
        let (input, output) = match &preferred.price {
            Price::Text { base, .. } => (
                base.input.credits_per_1k(TOKENS_OF_A_PRICE, factors.text),
                base.output.credits_per_1k(TOKENS_OF_A_PRICE, factors.text),
            ),
            Price::Units { unit, price, per } if *unit != Unit::SearchUnits => {
                (price.credits_per_1k(*per, factors.text), 0.0)
            }
            // With a price per image or search, tokens cost nothing.
            Price::Image(_) | Price::Units { .. } => (0.0, 0.0),
        };
        ModelItem {
            id: &self.id,
            name: &self.name,
            provider: &preferred.upstream().name,
            kind: self.kind,
            context_window: self.context_window,
            max_output_tokens: self.max_output_tokens,
            input_unit: self.unit,
            cost_per_1k_input: input,
            cost_per_1k_output: output,
            cost_per_image: self.makes_images().then(|| {
                let one = UsageBound {
                    images: 1,
                    ..UsageBound::default()
                };
                pricing::worst_case(&preferred.price, factors, &one)
            }),
            supports_tools: self.supports_tools,
            supports_vision: self.supports_vision,
            in_plan,
        }
    }
}

/// Returns the problems of a component in a slot of this gateway: providers' settings that it rejects, and models that
/// it would not serve.
pub async fn check_adapter(catalog: &Catalog, slot: &str, component: &Component) -> Vec<Problem> {
    let description = &component.description;
    let mut problems = Vec::new();
    // Its models are left out, too.
    let lacks_credential = |provider: &str| {
        let mut left_out = catalog.left_out.iter();
        left_out.any(|left_out| left_out.provider == provider && left_out.lacks_credential())
    };
    let users = catalog
        .providers
        .iter()
        .filter(|(_, provider)| provider.adapter == slot);
    for (name, provider) in users {
        problems.extend(provider_problems(name, provider, description));
        let setting = format!("providers.{name}.options");
        problems.extend(option_problem(&setting, slot, &provider.options, component).await);
        if !lacks_credential(name) {
            let of_models = candidate_problems(name, provider, &catalog.configured, component);
            problems.extend(of_models.await);
        }
        for (id, model) in &catalog.configured {
            for (index, upstream) in model.upstreams.iter().enumerate() {
                let price = upstream.price.as_ref().or(model.price.as_ref());
                let Some(Ok(price)) = price.map(|price| price.resolve()) else {
                    continue;
                };
                // A component of an earlier contract serves the kinds that it knows.
                let is_later = model.kind != WorkKind::Chat && is_built_in("models", id);
                if upstream.provider == *name
                    && !is_later
                    && !description.serves(kinds::served(model.kind, &price))
                {
                    problems.push(other_kind(id, index, slot));
                }
            }
        }
    }
    problems
}

/// Returns the options of this gateway's filters that a component rejects, and the filters that it cannot guard.
pub async fn check_filter(
    catalog: &Catalog,
    slot: &str,
    component: &FilterComponent,
) -> Vec<Problem> {
    filters::component_problems(&catalog.filters, slot, component).await
}

/// Returns the settings of a provider that an adapter rejects.
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
    let answers_by_itself = matches!(description.credential, CredentialSlot::None);
    if !answers_by_itself && provider.base_url.is_none() {
        problem("base_url".into(), "is missing".into());
    }
    if let Some(base_url) = &provider.base_url {
        let base_url = base_url.trim_end_matches('/');
        let mut paths = description.path_prefixes.iter();
        // The adapter appends this path: requests would go to …/chat/completions/chat/completions.
        if let Some(path) = paths.find(|path| path.len() > 1 && base_url.ends_with(path.as_str())) {
            let what = format!("ends in {path}, which the adapter appends itself: remove it");
            problem("base_url".into(), what);
        }
    }
    let setting = match provider.credentials.is_empty() {
        true => "credential",
        false => "credentials",
    };
    if answers_by_itself && provider.credential_sources().next().is_some() {
        problem(
            setting.into(),
            format!("the adapter {:?} uses no credential", provider.adapter),
        );
    }
    problems
}

/// Returns the problem of a component with options: an unknown name, or the component's own refusal. `setting` is the
/// place of the options.
async fn option_problem(
    setting: &str,
    slot: &str,
    options: &BTreeMap<String, String>,
    component: &Component,
) -> Option<Problem> {
    let known = &component.description.options;
    if let Some(option) = options.keys().find(|option| !known.contains(option)) {
        let known = known.join(", ");
        return Some(Problem {
            setting: format!("{setting}.{option}"),
            what: format!("the adapter {slot:?} does not have this option; it has: {known}"),
        });
    }
    let options = Vec::from_iter(options.clone());
    let (setting, what) = match component.configuration(&options).await.err()? {
        ConfigureError::Refused { name, why } => (format!("{setting}.{name}"), why),
        error => (setting.to_owned(), format!("cannot be validated: {error}")),
    };
    Some(Problem { setting, what })
}

/// Returns the problems of a component with the own options of models at a provider.
async fn candidate_problems(
    name: &str,
    provider: &ProviderConfig,
    models: &BTreeMap<String, ModelConfig>,
    component: &Component,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (id, model) in models {
        for (index, candidate) in model.upstreams.iter().enumerate() {
            if candidate.provider == name && !candidate.options.is_empty() {
                let setting = format!("models.{id:?}.upstreams[{index}].options");
                let options = candidate_options(candidate, provider);
                let slot = &provider.adapter;
                problems.extend(option_problem(&setting, slot, &options, component).await);
            }
        }
    }
    problems
}

/// Returns a candidate's options: the provider's, and the model's own over them.
fn candidate_options(
    candidate: &CandidateConfig,
    provider: &ProviderConfig,
) -> BTreeMap<String, String> {
    let mut options = provider.options.clone();
    options.extend(candidate.options.clone());
    options
}

/// Validates the options of providers and models with the active adapters. If operators manage a slot, errors go to the
/// log only: they could not activate another component in a gateway that does not start.
pub async fn check_options(
    providers: &BTreeMap<String, ProviderConfig>,
    models: &BTreeMap<String, ModelConfig>,
    plugins: &Plugins,
    environment: impl Fn(&str) -> Option<String>,
) -> Vec<Problem> {
    let mut found = Vec::new();
    for (name, provider) in providers {
        let Some(component) = plugins.adapter(&provider.adapter) else {
            continue;
        };
        let setting = format!("providers.{name}.options");
        let mut problems = Vec::from_iter(
            option_problem(&setting, &provider.adapter, &provider.options, &component).await,
        );
        // A problem of the provider's options would be each model's. Without its credential, its models are left out.
        let mut sources = provider.credential_sources();
        let has_credential = sources.all(|source| source.read(&environment).is_ok());
        if problems.is_empty() && has_credential {
            problems.extend(candidate_problems(name, provider, models, &component).await);
        }
        if !plugins.is_operated(&provider.adapter) {
            found.extend(problems);
            continue;
        }
        for Problem { setting, what } in problems {
            tracing::error!(
                setting,
                "the active component rejects the configuration: {what}"
            );
        }
    }
    found
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

    /// Notes in the latest problems that the setting is not only in the file.
    fn name_origin(&mut self, problems_before: usize, table: &str, name: &str) {
        let latest = &mut self.problems[problems_before..];
        if !latest.is_empty() && self.settings.default_catalog && is_built_in(table, name) {
            for problem in latest {
                problem
                    .what
                    .push_str(" (the entry is built in, and the file overrides single fields)");
            }
        }
    }

    /// Builds the upstream with each of its credentials; the inner error names a missing credential. Returns `None` after
    /// a reported problem.
    fn upstream(
        &mut self,
        name: &str,
        provider: &ProviderConfig,
    ) -> Option<Result<Vec<Arc<Upstream>>, MissingPart>> {
        let setting = format!("providers.{name}");
        let problems_before = self.problems.len();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=MAX_PROVIDER_BYTES).contains(&name.len()) || !name.bytes().all(is_name) {
            // Names appear in headers and metrics.
            let what = format!(
                "needs a name of 1 to {MAX_PROVIDER_BYTES} letters, digits, `-`, `_` and `.`"
            );
            self.problem(setting.clone(), what);
        }
        let slot = provider.credential_slot.as_ref().map(SlotConfig::slot);
        if let Some(slot) = &slot
            && let Err(what) = description::check_credential(slot)
        {
            self.problem(format!("{setting}.credential_slot"), what);
        }
        if provider.credential.is_some() && !provider.credentials.is_empty() {
            self.problem(
                format!("{setting}.credentials"),
                "replaces `credential`: remove one of the two",
            );
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
        let mut credentials = Vec::new();
        for (index, source) in provider.credential_sources().enumerate() {
            let setting = match provider.credential.is_some() {
                true => format!("{setting}.credential"),
                false => format!("{setting}.credentials[{index}]"),
            };
            match (source.read(&self.environment), &provider.credential) {
                (Ok(credential), _) => credentials.push((setting, credential)),
                (Err(why), Some(_)) => {
                    let variable = source.variable();
                    let is_unset = variable.is_some_and(|name| (self.environment)(name).is_none());
                    return Some(Err(match is_unset {
                        true => MissingPart::Unset(why),
                        false => MissingPart::Credential(why),
                    }));
                }
                // Nobody lists several credentials of a provider without wanting all of them.
                (Err(why), None) => self.problem(setting, why),
            }
        }
        for (setting, credential) in &credentials {
            let Some(secret) = credential.fixed() else {
                continue;
            };
            if secret.expose().len() < redact::MIN_BYTES {
                return Some(Err(MissingPart::Credential(format!(
                    "its credential has fewer than {} bytes: redacting it from responses would redact words, too; give \
                     the provider a longer one, or remove `credential` if it needs none",
                    redact::MIN_BYTES
                ))));
            }
            if http::HeaderValue::from_str(secret.expose()).is_err() {
                self.problem(
                    setting.clone(),
                    "contains characters that are invalid in a header",
                );
            }
        }
        if self.problems.len() > problems_before {
            return None;
        }
        let credentials = credentials.into_iter().map(|(_, credential)| credential);
        let mut credentials: Vec<_> = credentials.map(Some).collect();
        if credentials.is_empty() {
            credentials.push(None);
        }
        let with = |credential| {
            Arc::new(Upstream {
                name: name.to_owned(),
                base: base.clone(),
                credential,
                slot: slot.clone(),
                adapter: provider.adapter.clone(),
            })
        };
        Some(Ok(credentials.into_iter().map(with).collect()))
    }

    fn timeouts(&self, model: &ModelConfig, provider: &ProviderConfig) -> UpstreamTimeouts {
        let (model, provider) = (&model.timeouts, &provider.timeouts);
        let defaults = self.settings.timeouts;
        let own = |of: fn(&TimeoutOverrides) -> Option<NonZeroU64>| of(model).or(of(provider));
        UpstreamTimeouts::from_millis(
            own(|own| own.first_byte_ms).unwrap_or(defaults.first_byte_ms),
            own(|own| own.first_token_ms).unwrap_or(defaults.first_token_ms),
            own(|own| own.idle_ms).unwrap_or(defaults.idle_ms),
        )
    }

    /// Validates the provider's settings with its adapter. A missing or inactive adapter validates them at its
    /// activation.
    fn check_slot(&mut self, name: &str, provider: &ProviderConfig) {
        let Some(adapter) = self.plugins.adapter(&provider.adapter) else {
            return;
        };
        let problems = provider_problems(name, provider, &adapter.description);
        if self.plugins.is_operated(&provider.adapter) {
            // Operators could not activate another component in a gateway that does not start.
            for Problem { setting, what } in problems {
                tracing::error!(
                    setting,
                    "the active component rejects the configuration: {what}"
                );
            }
        } else {
            self.problems.extend(problems);
        }
    }

    fn serves(&self, slot: &str, kind: WorkKind, price: &Price) -> bool {
        self.plugins.is_operated(slot)
            || self
                .plugins
                .adapter(slot)
                .is_none_or(|adapter| adapter.description.serves(kinds::served(kind, price)))
    }

    fn model(
        &mut self,
        id: &str,
        model: &ModelConfig,
        upstreams: &BTreeMap<&str, Vec<Arc<Upstream>>>,
    ) -> Option<Model> {
        let setting = format!("models.{id:?}");
        let problems_before = self.problems.len();
        if !aliases::is_name(id) {
            self.problem(
                setting.clone(),
                "an id has 1 to 256 bytes and no control characters",
            );
        }
        let output = kinds::output(model.kind);
        let limits = [
            ("max_output_tokens", model.max_output_tokens),
            ("default_output_tokens", model.default_output_tokens),
        ];
        for (name, tokens) in limits {
            let what = match (output, tokens) {
                (KindOutput::Text, 0) => "is required, and must be at least 1",
                (KindOutput::Data, 1..) => "is only for models that make output",
                _ => continue,
            };
            self.problem(format!("{setting}.{name}"), what);
        }
        if model.default_output_tokens > model.max_output_tokens {
            self.problem(
                format!("{setting}.default_output_tokens"),
                "is more than max_output_tokens",
            );
        }
        let units: Vec<_> = model.prices().map(PriceConfig::unit).collect();
        let unit = units.first().copied().unwrap_or_default();
        let is_mixed = units.iter().any(|other| *other != unit);
        if is_mixed || !kinds::may_be_counted_in(model.kind, unit) {
            let what = match is_mixed {
                true => "have prices of different units: all prices of a model must be of one kind",
                false => "have prices of a unit that requests of this kind do not have",
            };
            self.problem(format!("{setting}.upstreams"), what);
        }
        if output == KindOutput::Audio && unit == InputUnit::Token && model.max_output_tokens == 0 {
            let what = "is required if the price is per token";
            self.problem(format!("{setting}.max_output_tokens"), what);
        }
        if model.kind == WorkKind::Chat && model.max_output_tokens > model.context_window {
            self.problem(
                format!("{setting}.max_output_tokens"),
                "is more than context_window",
            );
        }
        if model.image_family.is_some() && model.max_image_tokens == 0 {
            self.problem(
                format!("{setting}.image_family"),
                "needs max_image_tokens, which no image exceeds",
            );
        }
        if model.upstreams.is_empty() {
            self.problem(format!("{setting}.upstreams"), "names no provider");
        }
        let mut candidates = Vec::new();
        for (index, candidate) in model.upstreams.iter().enumerate() {
            let setting = format!("{setting}.upstreams[{index}]");
            if !self.settings.providers.contains_key(&candidate.provider) {
                self.problem(
                    format!("{setting}.provider"),
                    format!("the provider {:?} does not exist", candidate.provider),
                );
                continue;
            }
            let price = match candidate.price.as_ref().or(model.price.as_ref()) {
                None => Err("is missing: neither the model nor this upstream has a price"),
                Some(price) => match (model.kind, price.resolve()) {
                    (WorkKind::Chat, resolved) => resolved,
                    (_, Ok(Price::Image(_))) => {
                        Err("is a price per image, but the model makes none")
                    }
                    (kind, resolved) => resolved.map(|price| kinds::price_of(kind, price)),
                },
            };
            let price = match price {
                Ok(price) => price,
                Err(what) => {
                    self.problem(format!("{setting}.price"), what);
                    continue;
                }
            };
            if let Some(pool) = upstreams.get(candidate.provider.as_str()) {
                let upstream = &pool[0];
                if !self.serves(&upstream.adapter, model.kind, &price) {
                    self.problems.push(other_kind(id, index, &upstream.adapter));
                    continue;
                }
                let provider = &self.settings.providers[&candidate.provider];
                let timeouts = self.timeouts(model, provider);
                let model = candidate.model.clone().unwrap_or_else(|| id.to_owned());
                let members = pool.iter().enumerate();
                candidates.push(Candidate {
                    pool: members
                        .map(|(index, upstream)| PoolMember::new(index, upstream, &model))
                        .collect(),
                    model,
                    options: candidate_options(candidate, provider).into_iter().collect(),
                    price,
                    stream_plain: candidate.stream_plain,
                    weight: candidate.weight,
                    data_terms: match &upstream.base {
                        None => DataTerms::Local,
                        Some(_) => DataTerms::Configured {
                            regions: provider.regions.clone(),
                            retention_days: provider.retention_days,
                        },
                    },
                    timeouts,
                });
            }
        }
        let makes_images = |candidate: &Candidate| matches!(candidate.price, Price::Image(_));
        let images = candidates.iter().filter(|one| makes_images(one)).count();
        if images > 0 && images < candidates.len() {
            let what =
                "have prices per image and per token: all prices of a model must be of one kind";
            self.problem(format!("{setting}.upstreams"), what);
        }
        (self.problems.len() == problems_before).then(|| Model {
            id: id.to_owned(),
            name: model.name.clone().unwrap_or_else(|| id.to_owned()),
            aliases: model.aliases.clone(),
            ends_on: model.ends_on,
            kind: model.kind,
            unit,
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
            route: model.route,
            prompt_caching: model.prompt_caching,
            candidates,
        })
    }
}

/// Returns whether a provider has the credential of the built-in provider with its name.
fn is_as_built_in(left_out: &OmittedProvider, provider: &ProviderConfig) -> bool {
    let place = format!("providers.{}.credential.env", left_out.provider);
    let built_in = Figment::from(Toml::string(DEFAULT)).extract_inner::<String>(&place);
    let mut sources = provider.credential_sources();
    let variable = sources.next().and_then(|source| source.variable());
    built_in.is_ok_and(|name| variable == Some(name.as_str()))
}

/// Returns whether the built-in catalog has an entry with this name in `providers` or `models`.
fn is_built_in(table: &str, name: &str) -> bool {
    let built_in =
        Figment::from(Toml::string(DEFAULT)).extract_inner::<BTreeMap<String, IgnoredAny>>(table);
    built_in.is_ok_and(|entries| entries.contains_key(name))
}
