//! The parts of a gateway that a start builds from the configuration alone, before it connects to any service.
//!
//! **Invariant:** `weir serve` and `weir check` share this code, so that both accept the same configurations.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{anyhow, bail};
use http::HeaderValue;
use weir_egress::{Guard, Resolver};
use weir_identity::node_token::NodeTokens;
use weir_identity::pepper::Peppers;
use weir_identity::service_token::ServiceTokenSource;
use weir_identity::sign_in::SignInIssuers;
use weir_identity::verifiers::Verifiers;
use weir_outgoing as outgoing;
use weir_payments::settings::PaymentSecrets;
use weir_plugins::bundled::BundledComponent;
use weir_plugins::progress::CompileProgress;
use weir_plugins::{Loader, Plugins};
use weir_request::log_export::PendingLogExport;
use weir_sandbox::code_cache::CodeCache;
use weir_sandbox::compiler::Compiler;
use weir_sandbox::{Engine, GuestCapacity};
use weir_storage::clock::Clock;
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::{SecretKey, create_private_folder, environment};
use weir_telemetry::export::PendingExporter;
use weir_tools::remote::settings::{self as mcp_settings, McpServer};
use weir_tools::rules::Rules;
use weir_upstream::client::HttpClient;
use weir_upstream::file_reader::FileReader;

use crate::config::Config;
use crate::tls::Tls;

/// Parts that need neither the database nor the network.
pub struct PreparedParts {
    /// The binary's bundled plugins, loaded.
    pub plugins: Plugins,
    /// The peppers of API keys, not yet compared with the database's.
    pub key_peppers: Peppers,
    /// The keys that encrypt stored responses, not yet compared with the database's.
    pub sealing_keys: KeyRing,
    /// Verifiers of tokens, without their issuers' keys so far.
    pub verifiers: Verifiers,
    /// The issuers whose users sign in at the console, without their configuration so far.
    pub sign_in: SignInIssuers,
    pub service_tokens: ServiceTokenSource,
    /// The tokens with which other nodes call this one.
    pub node_tokens: NodeTokens,
    /// The reader of recordings and documents.
    pub file_reader: FileReader,
    pub http: HttpClient,
    /// The operators' rules for tools.
    pub rules: Rules,
    pub mcp_servers: Vec<McpServer>,
    /// The egress guard of tools.
    pub guard: Guard,
    /// The public listener's certificate; `None` without TLS.
    pub tls: Option<Tls>,
    /// The key from which accounts' webhook secrets are derived.
    pub webhook_key: Option<SecretKey>,
    /// The payment processor's secrets.
    pub payment_secrets: PaymentSecrets,
    pub exporters: Exporters,
}

/// The exporters that are configured.
pub struct Exporters {
    pub traces: Option<PendingExporter>,
    pub requests: Option<PendingLogExport>,
}

impl PreparedParts {
    /// Reads secrets, makes clients and loads plugins; the error lists all problems of the settings.
    pub async fn of(
        config: &Config,
        bundled: &[BundledComponent],
        clock: &Clock,
        compiler: Compiler,
        shared_code: Option<CodeCache>,
        progress: &CompileProgress,
    ) -> anyhow::Result<Self> {
        create_private_folder(&config.data_dir)?;
        let mut problems = Vec::new();
        let mut note = |setting: &str, error: anyhow::Error| {
            problems.push(format!("`{setting}`: {error:#}"));
        };
        let key_peppers = Peppers::read(&config.api_key_peppers, &config.own_pepper())
            .map_err(|error| note("api_key_peppers", error));
        let sealing_keys = KeyRing::read(&config.sealing_keys, &config.own_sealing_key())
            .map_err(|error| note("sealing_keys", error));
        let node_tokens = sealing_keys
            .clone()
            .map(|keys| NodeTokens::new(keys, clock.clone()));
        let issuers = outgoing::client(config.timeouts.connect())?;
        let dev_issuer = config.dev_issuer()?;
        let dev_issuer = dev_issuer.as_ref();
        let verifiers = Verifiers::new(&config.identity, dev_issuer, &issuers, clock)
            .map_err(|error| note("identity", error));
        let sign_in = SignInIssuers::new(&config.identity, &issuers, clock)
            .map_err(|error| note("identity.sign_in", error));
        let outgoing = config.identity.outgoing.as_ref();
        let service_tokens = node_tokens.clone().and_then(|nodes| {
            ServiceTokenSource::new(outgoing, nodes, &issuers, clock)
                .map_err(|error| note("identity.outgoing", error))
        });
        let webhook_key = webhook_key(config).map_err(|error| note("webhook_key", error));
        let payment_secrets = config
            .payments
            .secrets(config.is_dev(), &config.own_payment_key())
            .map_err(|error| note("payments", error));
        let traces = PendingExporter::of(&config.telemetry, config.timeouts.connect())
            .map_err(|error| note("telemetry", error));
        let requests = PendingLogExport::of(&config.log_export, config.timeouts.connect())
            .map_err(|error| note("log_export", error));
        let tls = config.tls.as_ref().map(Tls::read).transpose();
        let tls = tls.map_err(|error| problems.push(format!("{error:#}")));
        let rules =
            Rules::read(config.tools(), environment).map_err(|wrong| problems.extend(wrong));
        let mcp_servers =
            mcp_settings::read(&config.mcp, environment).map_err(|wrong| problems.extend(wrong));
        let (
            Ok(key_peppers),
            Ok(sealing_keys),
            Ok(verifiers),
            Ok(sign_in),
            Ok(service_tokens),
            Ok(node_tokens),
            Ok(webhook_key),
            Ok(payment_secrets),
            Ok(tls),
            Ok(rules),
            Ok(traces),
            Ok(requests),
            Ok(mcp_servers),
        ) = (
            key_peppers,
            sealing_keys,
            verifiers,
            sign_in,
            service_tokens,
            node_tokens,
            webhook_key,
            payment_secrets,
            tls,
            rules,
            traces,
            requests,
            mcp_servers,
        )
        else {
            bail!("the configuration is invalid:\n  {}", problems.join("\n  "));
        };
        Ok(Self {
            file_reader: FileReader::new(compiler.program().to_owned()),
            plugins: load_plugins(config, bundled, compiler, shared_code, progress).await?,
            key_peppers,
            sealing_keys,
            verifiers,
            sign_in,
            service_tokens,
            node_tokens,
            http: HttpClient::new(config.timeouts.connect())?,
            rules,
            mcp_servers,
            guard: guard()?,
            tls,
            webhook_key,
            payment_secrets,
            exporters: Exporters { traces, requests },
        })
    }
}

/// Makes the egress guard, with the system's resolver and certificate authorities.
fn guard() -> anyhow::Result<Guard> {
    let user_agent = HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION")));
    let settings = weir_egress::GuardSettings {
        tls: outgoing::tls_config()?,
        user_agent,
    };
    Ok(Guard::new(settings, Resolver::system()))
}

/// Returns the configured key, or a generated one if other nodes do not need it.
fn webhook_key(config: &Config) -> anyhow::Result<Option<SecretKey>> {
    match &config.webhook_key {
        Some(source) => SecretKey::configured(source, "the key").map(Some),
        None if config.has_own_secrets() => {
            SecretKey::load_or_create(&config.own_webhook_key()).map(Some)
        }
        None => Ok(None),
    }
}

/// Filters that a reload can add, in addition to those at the start.
const ROOM_FOR_FILTERS: u32 = 8;

/// Maximum number of guests with reserved address space beyond the configuration's need: each takes 8 GiB of 128 TiB.
const RESERVED_GUESTS: u32 = 8_000;

/// Returns the guests that a configuration may need at once: for each request one of its adapter and one of each
/// filter.
pub(super) fn needed_guests(config: &Config) -> u32 {
    let filters = u32::try_from(config.filters.len()).unwrap_or(u32::MAX);
    guests_with(config, filters)
}

fn guests_with(config: &Config, filters: u32) -> u32 {
    let requests = config.limits.admission.concurrent_requests.get();
    let of_requests = requests.saturating_mul(filters.saturating_add(1));
    of_requests.saturating_add(config.plugins.tool_calls.get())
}

/// Returns the guests with reserved address space. The reservation cannot grow while guests run, and unused space costs
/// nothing.
fn reserved_guests(config: &Config) -> u32 {
    let with_more_filters = guests_with(config, ROOM_FOR_FILTERS);
    needed_guests(config).max(with_more_filters.min(RESERVED_GUESTS))
}

/// Loads the bundled plugins, with compiled code from the shared cache or the data folder if it exists.
async fn load_plugins(
    config: &Config,
    bundled: &[BundledComponent],
    compiler: Compiler,
    shared_code: Option<CodeCache>,
    progress: &CompileProgress,
) -> anyhow::Result<Plugins> {
    let cache = Arc::new(CodeCache::new(
        config.data_dir.join("cache/plugins"),
        SecretKey::load_or_create(&config.data_dir.join("keys/plugin-cache"))?,
    ));
    let engine = Engine::start(GuestCapacity {
        guests: reserved_guests(config),
        memory_bytes: config.plugins.all_memory_bytes(),
    })?;
    let limits = config.plugins.limits.clone();
    let shared_code = shared_code.map(Arc::new);
    let loader = Loader::new(&engine, Some(cache.clone()), compiler, limits)?
        .with_shared_cache(shared_code.clone());
    let trust = config.trust();
    let plugins = Plugins::load(loader, trust, bundled, progress)
        .await
        .map_err(|(name, error)| {
            anyhow!(error).context(format!("cannot load the plugin {name:?}"))
        })?;
    for cache in [Some(cache), shared_code].into_iter().flatten() {
        cache.remove_unused(SystemTime::now());
    }
    Ok(plugins)
}
