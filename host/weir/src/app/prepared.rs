//! What a start makes of the configuration by itself, before it asks a store or anybody else.
//!
//! **Invariant:** `weir serve` and `weir check` both come this way, so that what is sound to one is sound to the other.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{anyhow, bail};
use weir_sandbox::code_cache::CodeCache;
use weir_sandbox::compiler::Compiler;
use weir_sandbox::{Engine, Room, Sandbox};
use weir_storage::clock::Clock;
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::{Key, create_private_folder};

use crate::config::Config;
use crate::identity::pepper::Peppers;
use crate::identity::service_token::ServiceTokenSource;
use crate::identity::verifiers::Verifiers;
use crate::inference::upstream::{self, HttpClient};
use crate::outgoing;
use crate::plugins::bundled::Bundled;
use crate::plugins::{Loader, Plugins};

/// What needs neither the database nor the network to be there.
pub struct Prepared {
    /// The adapters that the binary brings, loaded.
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
}

impl Prepared {
    /// Reads secrets, makes clients and loads adapters; the error lists everything that is wrong with the settings.
    pub async fn of(
        config: &Config,
        adapters: &[Bundled],
        clock: &Clock,
        compiler: Compiler,
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
        let (Ok(key_peppers), Ok(sealing_keys), Ok(verifiers), Ok(service_tokens)) =
            (key_peppers, sealing_keys, verifiers, service_tokens)
        else {
            bail!(
                "the configuration does not fit:\n  {}",
                problems.join("\n  ")
            );
        };
        Ok(Self {
            plugins: load_plugins(config, adapters, compiler).await?,
            key_peppers,
            sealing_keys,
            verifiers,
            service_tokens,
            http: upstream::http_client(config.timeouts.connect())?,
        })
    }
}

/// Loads the adapters that the binary brings, compiled code from the data folder where it is there.
async fn load_plugins(
    config: &Config,
    adapters: &[Bundled],
    compiler: Compiler,
) -> anyhow::Result<Plugins> {
    let cache = Arc::new(CodeCache::new(
        config.data_dir.join("cache/plugins"),
        Key::load_or_create(&config.data_dir.join("keys/plugin-cache"))?,
    ));
    let engine = Engine::start(Room {
        guests: config.limits.admission.concurrent_requests.get(),
        memory_bytes: config.plugins.all_memory_bytes(),
    })?;
    let loader = Loader {
        sandbox: Sandbox::new(&engine)?,
        cache: cache.clone(),
        compiler,
        limits: config.plugins.limits.clone(),
    };
    let plugins = Plugins::load(loader, adapters)
        .await
        .map_err(|(name, error)| anyhow!(error).context(format!("loading the plugin {name:?}")))?;
    cache.remove_unused(SystemTime::now());
    Ok(plugins)
}
