//! What a start makes of the configuration by itself, before it asks a store or anybody else.
//!
//! **Invariant:** `weir serve` and `weir check` both come this way, so that what is sound to one is sound to the other.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{anyhow, bail};
use http::HeaderValue;
use weir_egress::{Guard, Resolver};
use weir_outgoing as outgoing;
use weir_plugins::bundled::Bundled;
use weir_plugins::progress::CompileProgress;
use weir_plugins::{Loader, Plugins};
use weir_sandbox::code_cache::CodeCache;
use weir_sandbox::compiler::Compiler;
use weir_sandbox::{Engine, Room};
use weir_storage::clock::Clock;
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::{Key, create_private_folder, environment};
use weir_telemetry::export::Exporting;
use weir_upstream::client::HttpClient;

use crate::config::Config;
use crate::identity::pepper::Peppers;
use crate::identity::service_token::ServiceTokenSource;
use crate::identity::verifiers::Verifiers;
use crate::mcp::remote::settings::{self as mcp_settings, McpServer};
use crate::server::tls::Tls;
use crate::tools::rules::Rules;
use weir_payments::settings::PaymentSecrets;

/// What needs neither the database nor the network to be there.
pub struct Prepared {
    /// The plugins that the binary brings, loaded.
    pub plugins: Plugins,
    /// The peppers that API keys are stored under, not compared with the database's.
    pub key_peppers: Peppers,
    /// The keys that stored answers are sealed under, not compared with the database's.
    pub sealing_keys: KeyRing,
    /// Verifiers of tokens, which have asked nobody for keys.
    pub verifiers: Verifiers,
    /// The source of the token that is presented to other services.
    pub service_tokens: Option<ServiceTokenSource>,
    /// The client that reaches upstreams.
    pub http: HttpClient,
    /// What operators allow tools.
    pub rules: Rules,
    /// The servers whose tools are used.
    pub mcp_servers: Vec<McpServer>,
    /// The way out for tools.
    pub guard: Guard,
    /// The certificate of the public listener; `None` where it does not speak TLS.
    pub tls: Option<Tls>,
    /// What accounts' webhook secrets are made from.
    pub webhook_key: Option<Key>,
    /// What payments prove themselves with.
    pub payment_secrets: PaymentSecrets,
    /// Who is to send traces, if anybody.
    pub exporting: Option<Exporting>,
}

impl Prepared {
    /// Reads secrets, makes clients and loads plugins; the error lists everything that is wrong with the settings.
    pub async fn of(
        config: &Config,
        bundled: &[Bundled],
        clock: &Clock,
        compiler: Compiler,
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
        let issuers = outgoing::client(config.timeouts.connect())?;
        let dev_issuer = config.dev_issuer()?;
        let dev_issuer = dev_issuer.as_ref();
        let verifiers = Verifiers::new(&config.identity, dev_issuer, &issuers, clock)
            .map_err(|error| note("identity", error));
        let outgoing = config.identity.outgoing.as_ref();
        let service_tokens = ServiceTokenSource::new(outgoing, dev_issuer, &issuers, clock)
            .map_err(|error| note("identity.outgoing", error));
        let webhook_key = webhook_key(config).map_err(|error| note("webhook_key", error));
        let payment_secrets = config
            .payments
            .secrets(config.is_dev(), &config.own_payment_key())
            .map_err(|error| note("payments", error));
        let exporting = Exporting::of(&config.telemetry, config.timeouts.connect())
            .map_err(|error| note("telemetry", error));
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
            Ok(service_tokens),
            Ok(webhook_key),
            Ok(payment_secrets),
            Ok(tls),
            Ok(rules),
            Ok(exporting),
            Ok(mcp_servers),
        ) = (
            key_peppers,
            sealing_keys,
            verifiers,
            service_tokens,
            webhook_key,
            payment_secrets,
            tls,
            rules,
            exporting,
            mcp_servers,
        )
        else {
            bail!(
                "the configuration does not fit:\n  {}",
                problems.join("\n  ")
            );
        };
        Ok(Self {
            plugins: load_plugins(config, bundled, compiler, progress).await?,
            key_peppers,
            sealing_keys,
            verifiers,
            service_tokens,
            http: HttpClient::new(config.timeouts.connect())?,
            rules,
            mcp_servers,
            guard: guard()?,
            tls,
            webhook_key,
            payment_secrets,
            exporting,
        })
    }
}

/// The way out for tools: the system's resolver, and its certificate authorities.
fn guard() -> anyhow::Result<Guard> {
    let user_agent = HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION")));
    let settings = weir_egress::Settings {
        tls: outgoing::tls_config()?,
        user_agent,
    };
    Ok(Guard::new(settings, Resolver::system()))
}

/// The configured key, or one of this node's own where others need not have it, too.
fn webhook_key(config: &Config) -> anyhow::Result<Option<Key>> {
    match &config.webhook_key {
        Some(source) => Key::configured(source, "the key").map(Some),
        None if config.has_own_secrets() => {
            Key::load_or_create(&config.own_webhook_key()).map(Some)
        }
        None => Ok(None),
    }
}

/// Filters that have room when they come with SIGHUP, whatever the configuration has at the start.
const ROOM_FOR_FILTERS: u32 = 8;

/// Guests that room is reserved for beyond what the configuration needs, at most: each takes 8 GiB of 128 TiB of address space.
const RESERVED_GUESTS: u32 = 8_000;

/// Guests that a configuration may need at once: each request has one of its adapter's and one of each filter's.
pub(super) fn needed_guests(config: &Config) -> u32 {
    let filters = u32::try_from(config.filters.len()).unwrap_or(u32::MAX);
    guests_with(config, filters)
}

fn guests_with(config: &Config, filters: u32) -> u32 {
    let requests = config.limits.admission.concurrent_requests.get();
    let of_requests = requests.saturating_mul(filters.saturating_add(1));
    of_requests.saturating_add(config.plugins.tool_calls.get())
}

/// Guests that address space is reserved for. It cannot grow while guests run, and what is not used costs nothing.
fn reserved_guests(config: &Config) -> u32 {
    let with_more_filters = guests_with(config, ROOM_FOR_FILTERS);
    needed_guests(config).max(with_more_filters.min(RESERVED_GUESTS))
}

/// Loads the plugins that the binary brings, compiled code from the data folder where it is there.
async fn load_plugins(
    config: &Config,
    bundled: &[Bundled],
    compiler: Compiler,
    progress: &CompileProgress,
) -> anyhow::Result<Plugins> {
    let cache = Arc::new(CodeCache::new(
        config.data_dir.join("cache/plugins"),
        Key::load_or_create(&config.data_dir.join("keys/plugin-cache"))?,
    ));
    let engine = Engine::start(Room {
        guests: reserved_guests(config),
        memory_bytes: config.plugins.all_memory_bytes(),
    })?;
    let limits = config.plugins.limits.clone();
    let loader = Loader::new(&engine, Some(cache.clone()), compiler, limits)?;
    let trust = config.trust();
    let plugins = Plugins::load(loader, trust, bundled, progress)
        .await
        .map_err(|(name, error)| anyhow!(error).context(format!("loading the plugin {name:?}")))?;
    cache.remove_unused(SystemTime::now());
    Ok(plugins)
}
