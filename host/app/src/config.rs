//! All settings, documented at their declaration: here, or in the feature that takes them.
//!
//! Settings come from `weir.toml` (or the file that `--config` or `WEIR_CONFIG` names), then from the environment:
//! `WEIR_LISTEN`, and `__` between the levels, as in `WEIR_LIMITS__BODY_BYTES`. weir ignores variables that name no
//! setting, with a warning: for a Service called `weir`, Kubernetes sets `WEIR_PORT` and `WEIR_SERVICE_HOST` in every
//! container. Without any configuration, weir is a working gateway for one machine.
//!
//! A catalog layer comes last ([`Config::with_layer`]).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::os::unix::net::SocketAddr as SocketPath;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use figment::error::{Actual, Error, Kind};
use figment::providers::{Env, Format, Serialized, Toml};
use figment::value::{Dict, Value};
use figment::{Figment, Source};
use ipnet::IpNet;
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value as JsonValue, json};
use weir_catalog::config::{ModelConfig, ProviderConfig};
use weir_catalog::filters::FilterConfig;
use weir_catalog::layer::{self, Layer};
use weir_catalog::plans::PlanTerms;
use weir_catalog::{CatalogSettings, Problem};
use weir_identity::dev_issuer::DevIssuer;
use weir_identity::pepper::PepperSettings;
use weir_identity::rates::{FailurePolicy, RateLimits};
use weir_identity::settings::IdentitySettings;
use weir_inference::droppable::FieldNames;
use weir_inference::response_cache::settings::ResponseCacheSettings;
use weir_inference::sessions::settings::SessionSettings;
use weir_inference::settings::ExchangeLimits;
use weir_ledger::LedgerSettings;
use weir_ledger::price::PriceFactors;
use weir_payments::settings::PaymentSettings;
use weir_plugins::settings::PluginSettings;
use weir_plugins::trust::Trust;
use weir_request::admission::AdmissionLimits;
use weir_request::content_log::settings::ContentLogSettings;
use weir_request::cors::Origin;
use weir_request::limits::connections::ConnectionLimits;
use weir_request::limits::settings::{BodyLimits, TimeoutSettings};
use weir_request::listen_address::ListenAddress;
use weir_request::log_export::settings::LogExportSettings;
use weir_request::node::stores::StoreSettings;
use weir_storage::Cache;
use weir_storage::database::{self, SqlDialect};
use weir_storage::sealing::SealingKeySettings;
use weir_storage::secrets::{SecretSource, SecretUrl};
use weir_swarms::swarm::settings::SwarmSettings;
use weir_telemetry::LogFormat;
use weir_telemetry::settings::TelemetrySettings;
use weir_tools::remote::settings::McpServerSettings;
use weir_tools::settings::{CredentialSettings, IntegrationSettings, ToolSettings, ToolsSettings};

use crate::tls::TlsSettings;

/// The minimum bytes of the token for metrics.
pub const METRICS_TOKEN_BYTES: usize = 32;

/// The complete configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Address or host name, and port, of the public API; port 0 picks a free port. Default: `127.0.0.1:8080`.
    #[serde(default = "default_listen")]
    pub listen: ListenAddress,
    /// Address and port of `/internal` and `/metrics`; without it `/metrics` is at `listen`. Default: none.
    #[serde(default)]
    pub internal_listen: Option<ListenAddress>,
    /// File with a token of at least 32 bytes, read at each request: at `listen`, `/metrics` answers requests with
    /// `Authorization: Bearer TOKEN`, and direct ones from this machine. Default: none.
    #[serde(default)]
    pub metrics_token_file: Option<PathBuf>,
    /// Development mode, for this machine only; set it explicitly beside PostgreSQL, Redis or an issuer. Default:
    /// `true`.
    #[serde(default)]
    pub dev: Option<bool>,
    /// Folder of the SQLite database, generated keys, compiled plugins and the admin socket, created with mode 0700. A
    /// relative path begins at the folder of this file. Default: `.weir`.
    #[serde(default = "default_data_dir")]
    pub data_dir: PathBuf,
    /// Whether local commands can operate the gateway through `admin.sock` in `data_dir`. Default: `true`.
    #[serde(default = "yes")]
    pub admin_socket: bool,
    /// `sqlite:PATH` or `postgres://USER:PASSWORD@HOST[,HOST…]/NAME`, as a URL or a secret source. Default: `weir.db`
    /// in `data_dir`.
    #[serde(default)]
    pub database_url: Option<SecretUrl>,
    /// Shared cache: a URL of [one server, Sentinels or a cluster](redis.md), or a secret source. Default: in-process
    /// cache.
    #[serde(default)]
    pub redis_url: Option<SecretUrl>,
    /// Peppers that API keys are hashed under, the first for new keys; required on PostgreSQL outside development mode.
    /// Default: one in `data_dir`.
    #[serde(default)]
    pub api_key_peppers: Vec<PepperSettings>,
    /// Keys that encrypt stored responses, sessions and credentials, the first for new data; required on PostgreSQL
    /// outside development mode. Default: one in `data_dir`.
    #[serde(default)]
    pub sealing_keys: Vec<SealingKeySettings>,
    /// Timeouts of the database and the cache.
    #[serde(default)]
    pub stores: StoreSettings,
    /// Whether the built-in providers and models are added. Default: `true`.
    #[serde(default = "yes")]
    pub default_catalog: bool,
    /// Limits of requests, and of concurrency.
    #[serde(default)]
    pub limits: ServingLimits,
    /// The issuers of tokens, accepted beside API keys.
    #[serde(default)]
    pub identity: IdentitySettings,
    /// Timeouts of upstreams.
    #[serde(default)]
    pub timeouts: TimeoutSettings,
    /// Limits of plugins.
    #[serde(default)]
    pub plugins: PluginSettings,
    /// Requests per minute.
    #[serde(default)]
    pub rate_limits: RateLimits,
    /// Days for which audit events are kept. Default: 400.
    #[serde(default = "default_audit_days")]
    pub audit_days: NonZeroU32,
    /// Networks whose `X-Forwarded-For` weir trusts, such as `["10.0.0.0/8"]`. Default: none.
    #[serde(default)]
    pub trusted_proxies: Vec<IpNet>,
    /// Networks whose connections to `listen` must begin with the PROXY protocol, version 1 or 2. Default: none.
    #[serde(default)]
    pub proxy_protocol: Vec<IpNet>,
    /// Certificate and key of `listen`; see [`TlsSettings`]. Default: none, and `listen` speaks HTTP without TLS.
    #[serde(default)]
    pub tls: Option<TlsSettings>,
    /// Origins of web pages that may call the API, such as `["https://app.example"]`. Default: none.
    #[serde(default)]
    pub cors_origins: Vec<Origin>,
    /// Names of fields, such as `["logit_bias"]`, that weir drops from requests if an upstream does not support them.
    /// Default: none.
    #[serde(default)]
    pub ignore_fields: FieldNames,
    /// `text`, or `json` with one object a line. Default: `text`.
    #[serde(default)]
    pub log_format: LogFormat,
    /// The export of traces.
    #[serde(default)]
    pub telemetry: TelemetrySettings,
    /// The export of the facts of requests.
    #[serde(default)]
    pub log_export: LogExportSettings,
    /// The log of prompts and responses.
    #[serde(default)]
    pub content_log: ContentLogSettings,
    /// Without a Redis response, `reject` returns 503, and `allow` (development mode only) serves without rate limits.
    /// Default: `reject`.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// The lease on a node's holds in the ledger.
    #[serde(default)]
    pub ledger: LedgerSettings,
    /// Lifetime of sessions.
    #[serde(default)]
    pub sessions: SessionSettings,
    /// The response cache.
    #[serde(default)]
    pub response_cache: ResponseCacheSettings,
    /// Settings of swarms.
    #[serde(default)]
    pub swarms: SwarmSettings,
    /// The payment processor, and the products.
    #[serde(default)]
    pub payments: PaymentSettings,
    /// Factors on every price.
    #[serde(default)]
    pub price_factors: PriceFactors,
    /// Models and price factor of each plan, by its name; see [`PlanSettings`](weir_catalog::plans::PlanSettings).
    #[serde(default)]
    pub plans: PlanTerms,
    /// Rules for each tool, by its slot; see [`ToolSettings`]. For a bundled tool, each setting here overrides the same
    /// setting in `tools/default.toml`.
    #[serde(default)]
    pub tools: BTreeMap<String, ToolSettings>,
    /// Services that agents may call, by id; see [`IntegrationSettings`].
    #[serde(default)]
    pub integrations: BTreeMap<String, IntegrationSettings>,
    /// Credentials for these services, by name; see [`CredentialSettings`].
    #[serde(default)]
    pub credentials: BTreeMap<String, CredentialSettings>,
    /// Remote MCP servers with tools, by name; see [`McpServerSettings`].
    #[serde(default)]
    pub mcp: BTreeMap<String, McpServerSettings>,
    /// Secret source of at least 32 bytes, from which webhook signing secrets are derived; PostgreSQL outside
    /// development mode has no default and sends no webhooks without it. Default: one in `data_dir`.
    #[serde(default)]
    pub webhook_key: Option<SecretSource>,
    /// The upstreams, by name.
    #[serde(default)]
    pub providers: BTreeMap<String, ProviderConfig>,
    /// The models that clients can request, by id.
    #[serde(default)]
    pub models: BTreeMap<String, ModelConfig>,
    /// Filters of requests before routing, in this order; see [`FilterConfig`]. weir reserves memory for the filters at
    /// the start.
    #[serde(default)]
    pub filters: Vec<FilterConfig>,
    /// The models of the file and the environment as their settings, over which layers are merged.
    #[serde(skip)]
    pub own_models: Map<String, JsonValue>,
}

/// `[limits]`: limits of requests and of concurrency. The features that enforce them declare them.
#[derive(Debug, Clone, Default)]
pub struct ServingLimits {
    pub connections: ConnectionLimits,
    /// Limits of one request's body.
    pub bodies: BodyLimits,
    pub admission: AdmissionLimits,
    pub exchanges: ExchangeLimits,
}

/// The built-in models of the demo provider.
const DEMO_MODELS: [&str; 7] = [
    "demo",
    "demo-image",
    "demo-embedding",
    "demo-rerank",
    "demo-moderation",
    "demo-speech",
    "demo-transcription",
];

impl Config {
    /// Reads the configuration. Without `file`, reads `weir.toml` if it exists.
    ///
    /// A relative `data_dir` of the file, or the default one, is beside the file. One of the environment is relative to the
    /// working folder.
    ///
    /// Errors name the setting and its source.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        Self::warn_of_unknown_variables();
        let settings = Self::settings(file)?;
        let source = settings.find_metadata("data_dir");
        let is_of_file = source.is_none_or(|source| {
            let source = source.source.as_ref();
            source.and_then(Source::file_path).is_some()
        });
        let mut config = Self::extract(settings)?;
        if let Some(folder) = file.and_then(Path::parent)
            && is_of_file
        {
            let beside = folder.join(&config.data_dir);
            // Until November 2026 it was in the working folder. An empty database beside the file would look like a loss of all
            // accounts.
            ensure!(
                beside.exists() || !config.data_dir.join("weir.db").exists(),
                "`data_dir`: the data is in {}, and weir looks beside the configuration, in {}; move the folder, or set an absolute path",
                config.data_dir.display(),
                beside.display()
            );
            config.data_dir = beside;
        }
        Ok(config)
    }

    /// Returns the settings of the file and the environment, by the first part of their names.
    pub fn sources(file: Option<&Path>) -> anyhow::Result<Dict> {
        let settings = Self::settings(file)?.extract();
        settings.map_err(|error| anyhow!(in_our_words(error)))
    }

    /// Returns the log format, for a log that begins before the configuration is checked; text if the format cannot be
    /// read.
    pub fn log_format(file: Option<&Path>) -> LogFormat {
        let settings = Self::settings(file).ok();
        let format = settings.and_then(|settings| settings.extract_inner("log_format").ok());
        format.unwrap_or_default()
    }

    /// Reads the file and the environment.
    fn settings(file: Option<&Path>) -> anyhow::Result<Figment> {
        let named = file.is_some();
        let standard = TelemetrySettings::standard(|name| std::env::var(name).ok());
        let mut settings = Figment::from(Serialized::default("telemetry", standard));
        let file = file.unwrap_or(Path::new("weir.toml"));
        // figment treats a missing file as empty, or fails without its name.
        if file.is_file() {
            settings = settings.merge(Toml::file_exact(file));
        } else if named {
            anyhow::bail!("the file {} does not exist", file.display());
        }
        let known = Self::variables().filter(|name| is_setting(name.as_str()));
        Ok(settings.merge(known.split("__")))
    }

    /// Returns the environment variables that may name settings.
    fn variables() -> Env {
        Env::prefixed("WEIR_").ignore(&["config", "log", "token_file"])
    }

    fn warn_of_unknown_variables() {
        for (name, _) in Self::variables().iter() {
            if !is_setting(name.as_str()) {
                let name = name.as_str().to_ascii_uppercase();
                tracing::warn!("the environment variable WEIR_{name} names no setting; ignored");
            }
        }
    }

    /// Reads a configuration from text, without the environment.
    pub fn from_toml(text: &str) -> anyhow::Result<Self> {
        Self::extract(Figment::from(Toml::string(text)))
    }

    fn extract(settings: Figment) -> anyhow::Result<Self> {
        let lists_demo = settings.contains("providers.demo")
            || DEMO_MODELS
                .iter()
                .any(|model| settings.contains(&format!("models.{model}")));
        // The complete configuration reports settings with a wrong type.
        let own_models = settings.extract_inner("models").unwrap_or_default();
        let all = if settings
            .extract_inner::<bool>("default_catalog")
            .unwrap_or(true)
        {
            default_catalog(&settings)?.merge(settings)
        } else {
            settings
        };
        let all = Figment::from(Toml::string(weir_tools::DEFAULT)).merge(all);
        let mut config: Self = all
            .extract()
            .map_err(|error| anyhow!(in_our_words(error)))
            .context("the configuration is invalid")?;
        // The demo provider executes its clients' instructions, including delays: production gateways have it only if
        // an operator lists it.
        if !config.is_dev() && !lists_demo {
            config.providers.remove("demo");
            for model in DEMO_MODELS {
                config.models.remove(model);
            }
        }
        config.own_models = own_models;
        config.check()?;
        Ok(config)
    }

    /// Returns the configuration with a layer over its catalog. weir ignores disabled providers that do not exist: the
    /// file's owner may have removed them since.
    ///
    /// # Errors
    ///
    /// The first invalid field of each model.
    pub fn with_layer(&self, layer: &Layer) -> Result<Self, Vec<Problem>> {
        let mut config = self.clone();
        for name in layer.disabled_providers() {
            if let Some(provider) = config.providers.get_mut(name) {
                provider.enabled = false;
            }
        }
        if layer.models().next().is_some() {
            config.models = layer::read_models(self.models_with(layer))?;
        }
        Ok(config)
    }

    /// Returns the settings of all models, with a layer over them.
    pub fn models_with(&self, layer: &Layer) -> Map<String, JsonValue> {
        let own = || JsonValue::Object(self.own_models.clone());
        let layers = JsonValue::Object(
            layer
                .models()
                .map(|(id, model)| (id.clone(), model.clone()))
                .collect(),
        );
        let mut models = Map::new();
        if self.default_catalog {
            // Built-in models have no aliases that the file or the layer uses for its own models.
            let names = Figment::from(Serialized::defaults(json!({ "models": own() })))
                .merge(Serialized::defaults(json!({ "models": layers })));
            let built_in =
                default_catalog(&names).and_then(|built_in| Ok(built_in.extract_inner("models")?));
            models = built_in.unwrap_or_default();
            if !self.providers.contains_key("demo") {
                models.retain(|id, _| !DEMO_MODELS.contains(&&**id));
            }
        }
        let mut models = JsonValue::Object(models);
        layer::merge(&mut models, own());
        let JsonValue::Object(mut models) = models else {
            return Map::new();
        };
        layer.merge_over(&mut models);
        models
    }

    /// Validates rules that types cannot express; the error names every invalid setting.
    pub fn check(&self) -> anyhow::Result<()> {
        let mut problems = self.address_problems();
        problems.extend(self.key_problems());
        problems.extend(self.store_problems());
        if self.failure_policy == FailurePolicy::Allow && !self.is_dev() {
            problems.push(
                "`failure_policy` is `allow`, which only development mode permits".to_owned(),
            );
        }
        problems.extend(self.limits.admission.problems());
        problems.extend(self.ledger.problems());
        problems.extend(self.plugins.problems());
        problems.extend(self.identity.problems(self.is_dev()));
        problems.extend(self.response_cache.problems());
        problems.extend(self.swarms.problems());
        problems.extend(self.payments.problems(self.is_dev()));
        problems.extend(self.telemetry.problems());
        problems.extend(self.log_export.problems());
        problems.extend(self.content_log.problems());
        problems.extend(self.metrics_token_problem());
        anyhow::ensure!(
            problems.is_empty(),
            "the configuration is invalid:\n  {}",
            problems.join("\n  ")
        );
        Ok(())
    }

    fn metrics_token_problem(&self) -> Option<String> {
        let file = self.metrics_token_file.as_ref()?;
        let why = match std::fs::read_to_string(file) {
            Ok(token) if token.trim().len() >= METRICS_TOKEN_BYTES => return None,
            Ok(_) => format!("has fewer than {METRICS_TOKEN_BYTES} bytes"),
            Err(error) => format!("cannot be read: {error}"),
        };
        Some(format!("`metrics_token_file`: {} {why}", file.display()))
    }

    fn address_problems(&self) -> Vec<String> {
        let listens = [
            ("listen", Some(&self.listen)),
            ("internal_listen", self.internal_listen.as_ref()),
            ("swarms.listen", self.swarms.listen.as_ref()),
        ];
        let mut problems = Vec::new();
        for (setting, address) in listens {
            let Some(address) = address else {
                continue;
            };
            match address.resolve() {
                Err(error) => problems.push(format!("`{setting}` is {address}: {error}")),
                Ok(resolved) => {
                    if self.is_dev() && !resolved.iter().all(|address| address.ip().is_loopback()) {
                        problems.push(format!(
                            "`{setting}` is {address}: development mode serves only this machine; set `dev = false` to serve \
                 other machines",
                        ));
                    }
                }
            }
        }
        // The local payment processor shows pages at its own address, and works behind no proxy.
        for (setting, is_set) in [
            ("tls", self.tls.is_some()),
            ("proxy_protocol", !self.proxy_protocol.is_empty()),
        ] {
            if is_set && self.is_dev() {
                problems.push(format!(
                    "`{setting}` is set, but development mode serves only this machine, without it; set `dev = false` to serve \
                     other machines"
                ));
            }
        }
        if let Some(path) = self.admin_socket_path()
            && SocketPath::from_pathname(&path).is_err()
        {
            problems.push(format!(
                "`data_dir` makes the path of the admin socket too long for a Unix socket: {} has {} bytes, and \
                 about 100 fit; choose a shorter one, or set `admin_socket = false`",
                path.display(),
                path.as_os_str().len()
            ));
        }
        problems
    }

    fn key_problems(&self) -> Vec<String> {
        let peppers = self.api_key_peppers.iter().map(|pepper| pepper.version);
        let sealing_keys = self.sealing_keys.iter().map(|key| key.id);
        let mut problems = Vec::new();
        for (setting, field, numbers) in [
            ("api_key_peppers", "version", peppers.collect::<Vec<_>>()),
            ("sealing_keys", "id", sealing_keys.collect()),
        ] {
            for (index, number) in numbers.iter().enumerate() {
                if *number == 0 || numbers[..index].contains(number) {
                    problems.push(format!(
                        "`{setting}[{index}].{field}` is {number}; {field}s begin at 1 and must be unique"
                    ));
                }
            }
        }
        problems
    }

    fn store_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(error) = SqlDialect::of(&self.database_url()) {
            problems.push(error.to_string());
        }
        if let Some(url) = &self.redis_url
            && let Err(problem) = Cache::check_url(url)
        {
            problems.push(format!("`redis_url` {problem}"));
        }
        problems
    }

    /// Rejects an ambiguous mode: a gateway with shared stores, or with users, must set `dev`.
    pub fn check_mode(&self) -> anyhow::Result<()> {
        let postgres = SqlDialect::of(&self.database_url())? == SqlDialect::Postgres;
        let production = [
            ("database_url", postgres),
            ("redis_url", self.redis_url.is_some()),
            ("identity.web", self.identity.web.is_some()),
            ("identity.service", self.identity.service.is_some()),
            ("identity.sign_in", !self.identity.sign_in.is_empty()),
        ];
        let Some((setting, _)) = production.into_iter().find(|&(_, is_set)| is_set) else {
            return Ok(());
        };
        anyhow::ensure!(
            !postgres || self.dev != Some(false) || !self.api_key_peppers.is_empty(),
            "`api_key_peppers` is not set: keys in a PostgreSQL must outlive the data folder of one node"
        );
        anyhow::ensure!(
            !postgres || self.dev != Some(false) || !self.sealing_keys.is_empty(),
            "`sealing_keys` is not set: every node must be able to decrypt the data in a PostgreSQL"
        );
        anyhow::ensure!(
            self.dev.is_some(),
            "`{setting}` is set, which is unusual in development mode: set `dev = false` to serve \
                 other machines, or start with `--dev` to confirm development mode"
        );
        Ok(())
    }

    /// Returns whether the gateway is in development mode.
    pub fn is_dev(&self) -> bool {
        self.dev.unwrap_or(true)
    }

    /// Returns the publishers whose plugins the gateway accepts.
    pub fn trust(&self) -> Trust {
        let allow_unsigned = self.plugins.allow_unsigned.unwrap_or(self.is_dev());
        Trust::new(self.plugins.publishers.clone(), allow_unsigned)
    }

    /// Returns the time for which a stopping gateway still accepts connections.
    pub fn drain_delay(&self) -> Duration {
        let default_ms = if self.is_dev() { 0 } else { 5_000 };
        let delay_ms = self.limits.connections.drain_delay_ms;
        Duration::from_millis(delay_ms.unwrap_or(default_ms))
    }

    /// Returns the issuer of local tokens; none outside development mode.
    pub fn dev_issuer(&self) -> anyhow::Result<Option<DevIssuer>> {
        match self.is_dev() {
            true => DevIssuer::open(&self.data_dir).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the path of the admin socket, unless it is off.
    pub fn admin_socket_path(&self) -> Option<PathBuf> {
        self.admin_socket.then(|| self.data_dir.join("admin.sock"))
    }

    pub fn catalog(&self) -> CatalogSettings<'_> {
        CatalogSettings {
            default_catalog: self.default_catalog,
            providers: &self.providers,
            models: &self.models,
            filters: &self.filters,
            credentials: &self.credentials,
            timeouts: &self.timeouts,
            price_factors: &self.price_factors,
            plans: &self.plans,
            tells_what_is_missing: self.is_dev(),
        }
    }

    pub fn tools(&self) -> ToolsSettings<'_> {
        ToolsSettings {
            tools: &self.tools,
            integrations: &self.integrations,
            credentials: &self.credentials,
        }
    }

    /// Returns whether a node may have generated secrets that no other node needs.
    pub fn has_own_secrets(&self) -> bool {
        self.is_dev()
            || !matches!(
                SqlDialect::of(&self.database_url()),
                Ok(SqlDialect::Postgres)
            )
    }

    /// Returns the file of the generated webhook key, for a configuration without one.
    pub fn own_webhook_key(&self) -> PathBuf {
        self.data_dir.join("keys/webhooks")
    }

    /// Returns the file of the key with which the local payment processor signs its webhooks.
    pub fn own_payment_key(&self) -> PathBuf {
        self.data_dir.join("keys/payment-webhooks")
    }

    /// Returns the file of the generated pepper, for a configuration without one.
    pub fn own_pepper(&self) -> PathBuf {
        self.data_dir.join("keys/api-key-pepper")
    }

    /// Returns the file of the generated sealing key, for a configuration without one.
    pub fn own_sealing_key(&self) -> PathBuf {
        self.data_dir.join("keys/sealing")
    }

    /// Returns the database's URL for display: its password masked, and the path of a file absolute.
    pub fn shown_database(&self) -> String {
        let url = self.database_url();
        let file = database::file_of(&url).and_then(|file| std::path::absolute(file).ok());
        file.map_or_else(
            || url.to_string(),
            |file| format!("sqlite:{}", file.display()),
        )
    }

    /// Returns whether the database exists, as far as that is known without contacting a server.
    pub fn has_database(&self) -> bool {
        database::file_of(&self.database_url()).is_none_or(|file| file.exists())
    }

    pub fn database_url(&self) -> SecretUrl {
        self.database_url.clone().unwrap_or_else(|| {
            SecretUrl::new(format!(
                "sqlite:{}",
                self.data_dir.join("weir.db").display()
            ))
        })
    }
}

impl<'de> Deserialize<'de> for ServingLimits {
    /// Splits the table among the features' settings. serde's `flatten` would name only the table in errors.
    fn deserialize<D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        let mut table = Dict::deserialize(table)?;
        let limits = Self {
            connections: take_settings(&mut table)?,
            bodies: take_settings(&mut table)?,
            admission: take_settings(&mut table)?,
            exchanges: take_settings(&mut table)?,
        };
        match table.first_key_value() {
            None => Ok(limits),
            Some((unknown, _)) => Err(de::Error::custom(format_args!(
                "`limits.{unknown}` is not a setting"
            ))),
        }
    }
}

/// Settings that are or contain secrets.
const SECRET_SETTINGS: [&str; 7] = [
    "api_key_peppers",
    "sealing_keys",
    "database_url",
    "redis_url",
    "credential",
    "otlp_endpoint",
    "otlp_headers",
];

/// Removes possible secrets from figment's error: the values of secret settings, and a text in place of a table or a
/// list, because secrets are written inside those. From a syntax error, removes the quoted line of the file.
fn without_secrets(mut error: Error) -> Error {
    let is_secret = error
        .path
        .iter()
        .any(|name| SECRET_SETTINGS.iter().any(|s| name.eq_ignore_ascii_case(s)));
    match &mut error.kind {
        Kind::InvalidType(found, expected) => {
            let expected = expected.to_string();
            let holds_others = ["struct ", "a sequence", "a map"]
                .iter()
                .any(|container| expected.starts_with(container));
            if is_secret || (holds_others && matches!(found, Actual::Str(_))) {
                *found = Actual::Other("a hidden value".to_owned());
            }
        }
        Kind::InvalidValue(found, _) if is_secret => {
            *found = Actual::Other("a hidden value".to_owned());
        }
        Kind::Message(text) if text.starts_with("TOML parse error") => {
            // The line of the file, and the mark under it, begin with a bar.
            let told = text.lines().filter(|line| !line.contains('|'));
            *text = told.collect::<Vec<_>>().join(": ");
        }
        _ => {}
    }
    error
}

/// Returns the built-in catalog without the credentials that `settings` replaces, because figment would merge both tables,
/// and without aliases that `settings` uses for its own models.
fn default_catalog(settings: &Figment) -> anyhow::Result<Figment> {
    let mut catalog: Dict = Figment::from(Toml::string(weir_catalog::DEFAULT)).extract()?;
    if let Some(Value::Dict(_, providers)) = catalog.get_mut("providers") {
        for (name, provider) in providers {
            if settings.contains(&format!("providers.{name}.credential"))
                && let Value::Dict(_, provider) = provider
            {
                provider.remove("credential");
            }
        }
    }
    // The complete configuration reports settings with a wrong type.
    let own: BTreeMap<String, NamedModel> = settings.extract_inner("models").unwrap_or_default();
    let is_own = |alias: &str| {
        let mut models = own.values();
        own.contains_key(alias) || models.any(|model| model.aliases.iter().any(|own| own == alias))
    };
    if let Some(Value::Dict(_, models)) = catalog.get_mut("models") {
        for model in models.values_mut() {
            if let Value::Dict(_, model) = model
                && let Some(Value::Array(_, aliases)) = model.get_mut("aliases")
            {
                aliases.retain(|alias| !alias.as_str().is_some_and(is_own));
            }
        }
    }
    Ok(Figment::from(Serialized::defaults(catalog)))
}

/// The names of a model.
#[derive(Deserialize)]
struct NamedModel {
    #[serde(default)]
    aliases: Vec<String>,
}

/// Returns whether a variable's name without `WEIR_` begins with a setting.
fn is_setting(name: &str) -> bool {
    let top = name.split("__").next().unwrap_or_default();
    let known = field_names::<Config>();
    known.iter().any(|known| known.eq_ignore_ascii_case(top))
}

/// Returns figment's error, with a setting's name as in the file.
fn in_our_words(error: Error) -> String {
    // `default` is figment's name of the default profile, and not a setting.
    let text = without_secrets(error)
        .to_string()
        .replace("key \"default.", "key \"");
    // figment shows a variable's name in capitals.
    match text.split_once("for key \"") {
        Some((what, rest)) if rest.contains("environment variable") => {
            let (key, source) = rest.split_once('"').unwrap_or((rest, ""));
            format!("{what}for key \"{}\"{source}", key.to_lowercase())
        }
        _ => text,
    }
}

/// Takes the settings that `T` declares out of the table `limits`.
fn take_settings<T: DeserializeOwned, E: de::Error>(table: &mut Dict) -> Result<T, E> {
    let names = field_names::<T>().iter();
    let own: Dict = names.filter_map(|name| table.remove_entry(*name)).collect();
    Value::from(own).deserialize().map_err(|error| {
        let Error { path, kind, .. } = error;
        E::custom(format_args!("`limits.{}`: {kind}", path.join(".")))
    })
}

/// Returns the fields of a struct, from serde's error about an unknown field.
fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let refused: Result<T, Error> = Figment::from(Serialized::default("?", ())).extract();
    match refused.map(drop).map_err(|error| error.kind) {
        Err(Kind::UnknownField(_, known)) => known,
        other => unreachable!("settings reject unknown fields: {other:?}"),
    }
}

fn default_listen() -> ListenAddress {
    ListenAddress::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))
}

fn default_data_dir() -> PathBuf {
    PathBuf::from(".weir")
}

fn default_audit_days() -> NonZeroU32 {
    NonZeroU32::new(400).expect("not zero")
}

fn yes() -> bool {
    true
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn each_feature_gets_its_own_limits() {
        let config = Config::from_toml(
            "[limits]\nconnections = 1\nbody_bytes = 2\nqueued_requests = 3\nanswer_bytes = 4\n",
        );
        let limits = config.unwrap().limits;
        assert_eq!(limits.connections.connections.get(), 1);
        assert_eq!(limits.bodies.body_bytes.get(), 2);
        assert_eq!(limits.admission.queued_requests, 3);
        assert_eq!(limits.exchanges.answer_bytes.get(), 4);
        assert_eq!(limits.exchanges.hang_up_drain_ms, 10_000);
        assert_eq!(limits.exchanges.stream_flush_ms, 5);
    }

    #[test]
    fn errors_name_the_setting() {
        for (toml, parts) in [
            (
                "[limits]\nconnections = 0\n",
                ["limits.connections", "nonzero"],
            ),
            (
                "[limits]\nbody_bytes = 'many'\n",
                ["limits.body_bytes", "many"],
            ),
            ("[limits]\nbody = 1\n", ["limits.body", "not a setting"]),
            ("limits = 1\n", ["limits", "map"]),
            (
                "[timeouts]\ntotal_ms = 0\n",
                ["timeouts.total_ms", "nonzero"],
            ),
            ("[ledger]\nrenew_ms = 0\n", ["ledger.renew_ms", "nonzero"]),
            (
                "[ledger]\nrenew_ms = 20000\n",
                ["ledger.lease_ms", "ledger.renew_ms"],
            ),
            (
                "[providers.demo]\ntimeouts = { idle_ms = 0 }\n",
                ["providers.demo.timeouts.idle_ms", "nonzero"],
            ),
            (
                "[plugins.limits]\nhandles = 0\n",
                ["plugins.limits.handles", "nonzero"],
            ),
        ] {
            let error = format!("{:#}", Config::from_toml(toml).unwrap_err());
            for part in parts {
                assert!(error.contains(part), "{toml}{error}");
            }
        }
    }
}
