//! Every setting, documented where it is declared.
//!
//! Settings come from `weir.toml` (or the file that `--config` or `WEIR_CONFIG` names), then from the
//! environment: `WEIR_LISTEN`, and `__` between the levels, as in `WEIR_LIMITS__BODY_BYTES`. Variables
//! that name no setting are ignored with a warning: for a Service called `weir`, Kubernetes sets
//! `WEIR_PORT` and `WEIR_SERVICE_HOST` in every container. Zero configuration is a working gateway for
//! one machine.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use figment::Figment;
use figment::error::{Error, Kind};
use figment::providers::{Env, Format, Serialized, Toml};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::billing::ledger::LeaseSettings;
use crate::catalog::config::{ModelConfig, PriceFactors, ProviderConfig};
use crate::identity::dev_issuer::DevIssuer;
use crate::identity::limits::{FailurePolicy, RateLimits};
use crate::identity::pepper::PepperSettings;
use crate::identity::settings::IdentitySettings;
use crate::plugins;
use crate::plugins::compiler::CompileLimits;
use crate::plugins::limits::MAX_MEMORY_BYTES;
use weir_storage::database::Dialect;
use weir_storage::sealing::SealingKeySettings;
use weir_storage::secrets::SecretUrl;

/// The whole configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the public service listens. Default `127.0.0.1:8080`; port 0 picks a free one.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// Where the paths under `/internal` are served, to other services only, e.g. `127.0.0.1:8081`. Default:
    /// nowhere.
    #[serde(default)]
    pub internal_listen: Option<SocketAddr>,
    /// Development mode: loopback only, a fresh API key printed at the start, requests that came
    /// through a proxy refused. `true` unless set; must be set beside PostgreSQL, Redis or an issuer of
    /// tokens.
    #[serde(default)]
    pub dev: Option<bool>,
    /// Where weir keeps its database, keys and compiled plugins. Default `.weir`, made with mode 0700.
    #[serde(default = "default_data_dir")]
    pub data_dir: PathBuf,
    /// The database: `sqlite:/var/lib/weir/weir.db` or `postgres://user:password@host/name`. Default:
    /// `weir.db` in the data folder.
    #[serde(default)]
    pub database_url: Option<SecretUrl>,
    /// The cache that several nodes share: `redis://:password@host:6379/0`, or `rediss://` for TLS.
    /// Default: in process.
    #[serde(default)]
    pub redis_url: Option<SecretUrl>,
    /// What API keys are stored under; see [`PepperSettings`]. The first is for new keys. Nodes that share a
    /// database need the same. Default, but for PostgreSQL outside development mode: one of this node's own, in the
    /// data folder.
    #[serde(default)]
    pub api_key_peppers: Vec<PepperSettings>,
    /// What stored answers are sealed under; see [`SealingKeySettings`]. The first seals, all open; one can be dropped
    /// a day after it was the first. Nodes that share a database need the same. Default, but for PostgreSQL outside
    /// development mode: one of this node's own, in the data folder.
    #[serde(default)]
    pub sealing_keys: Vec<SealingKeySettings>,
    /// Whether the built-in providers and models are there beside those configured. Default `true`.
    #[serde(default = "yes")]
    pub default_catalog: bool,
    /// Bounds on what clients send and how much is served at once.
    #[serde(default)]
    pub limits: Limits,
    /// Whose tokens are accepted beside API keys.
    #[serde(default)]
    pub identity: IdentitySettings,
    /// How long upstreams may take.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Bounds on plugins.
    #[serde(default)]
    pub plugins: PluginsConfig,
    /// Requests per minute.
    #[serde(default)]
    pub rate_limits: RateLimits,
    /// Proxies whose `X-Forwarded-For` is believed, as networks, e.g. `["10.0.0.0/8"]`. Default: none.
    #[serde(default)]
    pub trusted_proxies: Vec<IpNet>,
    /// What happens while the cache does not answer: `reject` (default), or `allow` in development mode.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// How the ledger is kept.
    #[serde(default)]
    pub ledger: LedgerConfig,
    /// What prices are multiplied with.
    #[serde(default)]
    pub price_factors: PriceFactors,
    /// The upstreams, by name.
    #[serde(default)]
    pub providers: BTreeMap<String, ProviderConfig>,
    /// The models that clients can ask for, by id.
    #[serde(default)]
    pub models: BTreeMap<String, ModelConfig>,
}

/// Bounds on what clients send and how much is served at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of a request's body. Default 10 MiB.
    pub body_bytes: usize,
    /// MiB of all requests' bodies together; more wait, then get 503. Default 512.
    pub all_bodies_mib: u32,
    /// Connections of clients at once; more wait to be accepted. Default 4,096.
    pub connections: u32,
    /// Milliseconds in which the head of a request must arrive, and for which an idle connection is kept:
    /// a load balancer in front should close its own idle connections sooner. Default 10,000.
    pub head_timeout_ms: u64,
    /// Milliseconds in which a request's body must arrive. Default 30,000.
    pub body_timeout_ms: u64,
    /// Requests that are worked on at once; also the number of plugin instances. Default 512.
    pub concurrent_requests: u32,
    /// Requests that wait for their turn beyond those; more get 503. Default 512.
    pub queued_requests: u32,
    /// Milliseconds that a request waits for its turn before it gets 503. Default 2,000.
    pub queue_timeout_ms: u64,
    /// Milliseconds that a client may leave a streamed answer unread before weir takes it for gone.
    /// Default 30,000.
    pub client_write_timeout_ms: u64,
    /// Milliseconds that work goes on after a client hung up, so that the upstream's count of
    /// tokens can still arrive. Default 10,000.
    pub hang_up_drain_ms: u64,
    /// Milliseconds that a stopping gateway gives to requests under way. Default 30,000.
    pub shutdown_ms: u64,
    /// Bytes of one upstream answer. Default 64 MiB.
    pub answer_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 10 << 20,
            all_bodies_mib: 512,
            connections: 4_096,
            head_timeout_ms: 10_000,
            body_timeout_ms: 30_000,
            concurrent_requests: 512,
            queued_requests: 512,
            queue_timeout_ms: 2_000,
            client_write_timeout_ms: 30_000,
            hang_up_drain_ms: 10_000,
            shutdown_ms: 30_000,
            answer_bytes: 64 << 20,
        }
    }
}

/// How long upstreams may take. A provider may override each.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Milliseconds to connect, name look-up and TLS included. Default 5,000.
    pub connect_ms: u64,
    /// Milliseconds from the request to the head of a streamed answer. An answer that is not
    /// streamed begins when it is complete, so that only the total bounds it. Default 120,000.
    pub first_byte_ms: u64,
    /// Milliseconds between two pieces of an answer. Default 60,000.
    pub idle_ms: u64,
    /// Milliseconds for the whole request, retries and fallbacks included. Default 600,000.
    pub total_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect_ms: 5_000,
            first_byte_ms: 120_000,
            idle_ms: 60_000,
            total_ms: 600_000,
        }
    }
}

/// How the ledger is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LedgerConfig {
    /// Milliseconds between two renewals of a node's lease on what it holds; as often it looks for the holds
    /// of nodes whose lease is over. Default 5,000.
    pub renew_ms: u64,
    /// Milliseconds that a lease is valid; at least twice `renew_ms`. Default 30,000.
    pub lease_ms: u64,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        let LeaseSettings {
            renew_every,
            valid_for,
        } = LeaseSettings::default();
        Self {
            renew_ms: renew_every.as_millis() as u64,
            lease_ms: valid_for.as_millis() as u64,
        }
    }
}

impl LedgerConfig {
    /// As the ledger has it.
    pub fn lease(&self) -> LeaseSettings {
        LeaseSettings {
            renew_every: Duration::from_millis(self.renew_ms),
            valid_for: Duration::from_millis(self.lease_ms),
        }
    }
}

/// Bounds on plugins.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PluginsConfig {
    /// What every plugin may use.
    pub limits: plugins::Limits,
    /// What compiling one that arrives at run time may take.
    pub compile: CompileLimits,
    /// Traps within a minute for which a plugin is taken out of service; 0 for never. Default 5.
    pub quarantine_traps: u32,
}

impl Default for PluginsConfig {
    fn default() -> Self {
        Self {
            limits: plugins::Limits::default(),
            compile: CompileLimits::default(),
            quarantine_traps: 5,
        }
    }
}

impl Config {
    /// Reads the configuration. Without `file`, `weir.toml` is read if it is there.
    ///
    /// Errors name the setting and where it came from.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let named = file.is_some();
        let mut settings = Figment::new();
        let file = file.unwrap_or(Path::new("weir.toml"));
        // figment takes a file that is missing for an empty one, or fails without its name.
        if file.is_file() {
            settings = settings.merge(Toml::file_exact(file));
        } else if named {
            anyhow::bail!("there is no file {}", file.display());
        }
        let known = top_level_names();
        let environment = Env::prefixed("WEIR_")
            .ignore(&["config", "log", "token_file"])
            .filter(move |name| {
                let top = name.as_str().split("__").next().unwrap_or_default();
                let is_known = known.iter().any(|known| known.eq_ignore_ascii_case(top));
                if !is_known {
                    tracing::warn!(
                        "the environment variable WEIR_{name} names no setting; ignored"
                    );
                }
                is_known
            })
            .split("__");
        Self::extract(settings.merge(environment))
    }

    /// Reads a configuration from text, without the environment.
    pub fn from_toml(text: &str) -> anyhow::Result<Self> {
        Self::extract(Figment::from(Toml::string(text)))
    }

    fn extract(settings: Figment) -> anyhow::Result<Self> {
        let all = if settings
            .extract_inner::<bool>("default_catalog")
            .unwrap_or(true)
        {
            Figment::from(Toml::string(crate::catalog::DEFAULT)).merge(settings)
        } else {
            settings
        };
        let config: Self = all
            .extract()
            // `default` is figment's name for what belongs to no profile, and no key of ours.
            .map_err(|error| anyhow!(error.to_string().replace("key \"default.", "key \"")))
            .context("the configuration does not fit")?;
        config.check()?;
        Ok(config)
    }

    /// Checks what types cannot say; the error names every setting that is wrong.
    pub fn check(&self) -> anyhow::Result<()> {
        let mut problems = Vec::new();
        let listens = [
            ("listen", Some(self.listen)),
            ("internal_listen", self.internal_listen),
        ];
        for (setting, address) in listens {
            if let Some(address) = address
                && self.is_dev()
                && !address.ip().is_loopback()
            {
                problems.push(format!(
                    "`{setting}` is {address}: development mode serves this machine only; set `dev = false` \
                     to serve others",
                ));
            }
        }
        let peppers = self.api_key_peppers.iter().map(|pepper| pepper.version);
        let sealing_keys = self.sealing_keys.iter().map(|key| key.id);
        for (setting, field, numbers) in [
            ("api_key_peppers", "version", peppers.collect::<Vec<_>>()),
            ("sealing_keys", "id", sealing_keys.collect()),
        ] {
            for (index, number) in numbers.iter().enumerate() {
                if *number == 0 || numbers[..index].contains(number) {
                    problems.push(format!(
                        "`{setting}[{index}].{field}` is {number}; {field}s begin at 1 and are used once"
                    ));
                }
            }
        }
        if let Err(error) = Dialect::of(&self.database_url()) {
            problems.push(error.to_string());
        }
        if let Some(url) = &self.redis_url
            && !matches!(url.scheme(), "redis" | "rediss")
        {
            problems.push("`redis_url` must begin with redis:// or rediss://".to_owned());
        }
        for (setting, value) in [
            (
                "limits.concurrent_requests",
                u64::from(self.limits.concurrent_requests),
            ),
            (
                "limits.all_bodies_mib",
                u64::from(self.limits.all_bodies_mib),
            ),
            ("limits.connections", u64::from(self.limits.connections)),
            ("limits.head_timeout_ms", self.limits.head_timeout_ms),
            ("limits.body_bytes", self.limits.body_bytes as u64),
            ("limits.answer_bytes", self.limits.answer_bytes),
            ("limits.body_timeout_ms", self.limits.body_timeout_ms),
            (
                "limits.client_write_timeout_ms",
                self.limits.client_write_timeout_ms,
            ),
            ("ledger.renew_ms", self.ledger.renew_ms),
            ("timeouts.connect_ms", self.timeouts.connect_ms),
            ("timeouts.first_byte_ms", self.timeouts.first_byte_ms),
            ("timeouts.idle_ms", self.timeouts.idle_ms),
            ("timeouts.total_ms", self.timeouts.total_ms),
            (
                "plugins.limits.call_timeout_ms",
                self.plugins.limits.call_timeout_ms,
            ),
            (
                "plugins.limits.memory_bytes",
                self.plugins.limits.memory_bytes,
            ),
            ("plugins.limits.cpu_ms", self.plugins.limits.cpu_ms),
            (
                "plugins.limits.call_bytes",
                self.plugins.limits.call_bytes as u64,
            ),
            ("plugins.limits.handles", self.plugins.limits.handles as u64),
            (
                "plugins.compile.timeout_ms",
                self.plugins.compile.timeout_ms,
            ),
            (
                "plugins.compile.memory_mib",
                self.plugins.compile.memory_mib,
            ),
        ] {
            if value == 0 {
                problems.push(format!("`{setting}` must be more than 0"));
            }
        }
        if self.ledger.lease_ms / 2 < self.ledger.renew_ms {
            problems.push("`ledger.lease_ms` must be at least twice `ledger.renew_ms`".to_owned());
        }
        if self.failure_policy == FailurePolicy::Allow && !self.is_dev() {
            problems
                .push("`failure_policy` is `allow`, which is for development mode only".to_owned());
        }
        if self.limits.all_bodies_mib > 1 << 20 {
            problems.push("`limits.all_bodies_mib` is more than 1 TiB".to_owned());
        }
        if self.limits.concurrent_requests > 8_192 {
            problems.push(format!(
                "`limits.concurrent_requests` is {}; more than 8192 plugin instances do not fit the address space",
                self.limits.concurrent_requests
            ));
        }
        if self.plugins.limits.memory_bytes > MAX_MEMORY_BYTES {
            problems.push(format!(
                "`plugins.limits.memory_bytes` is {}; a plugin can have {MAX_MEMORY_BYTES} at most",
                self.plugins.limits.memory_bytes
            ));
        }
        problems.extend(self.identity.problems());
        anyhow::ensure!(
            problems.is_empty(),
            "the configuration does not fit:\n  {}",
            problems.join("\n  ")
        );
        Ok(())
    }

    /// Refuses to guess whether a gateway on shared stores, or with users, is for one developer or for all.
    pub fn check_mode(&self) -> anyhow::Result<()> {
        let postgres = Dialect::of(&self.database_url())? == Dialect::Postgres;
        let production = [
            ("database_url", postgres),
            ("redis_url", self.redis_url.is_some()),
            ("identity.web", self.identity.web.is_some()),
            ("identity.service", self.identity.service.is_some()),
        ];
        let Some((setting, _)) = production.into_iter().find(|&(_, is_set)| is_set) else {
            return Ok(());
        };
        anyhow::ensure!(
            !postgres || self.dev != Some(false) || !self.api_key_peppers.is_empty(),
            "`api_key_peppers` is not set: the keys in a PostgreSQL must outlive the data folder of one node"
        );
        anyhow::ensure!(
            !postgres || self.dev != Some(false) || !self.sealing_keys.is_empty(),
            "`sealing_keys` is not set: what is sealed in a PostgreSQL must open on every node"
        );
        anyhow::ensure!(
            self.dev.is_some(),
            "`{setting}` is set, and development mode is not meant for it: set `dev = false` to serve \
             others, or start with `--dev` for development mode all the same"
        );
        Ok(())
    }

    /// Whether it is in development mode.
    pub fn is_dev(&self) -> bool {
        self.dev.unwrap_or(true)
    }

    /// The issuer of local tokens; none outside development mode.
    pub fn dev_issuer(&self) -> anyhow::Result<Option<DevIssuer>> {
        match self.is_dev() {
            true => DevIssuer::open(&self.data_dir).map(Some),
            false => Ok(None),
        }
    }

    /// The file of the pepper that the gateway makes for itself where none is configured.
    pub fn own_pepper(&self) -> PathBuf {
        self.data_dir.join("keys/api-key-pepper")
    }

    /// The database's URL.
    pub fn database_url(&self) -> SecretUrl {
        self.database_url.clone().unwrap_or_else(|| {
            SecretUrl::new(format!(
                "sqlite:{}",
                self.data_dir.join("weir.db").display()
            ))
        })
    }
}

/// The fields of [`Config`], as serde names them when it refuses one that is none of them.
fn top_level_names() -> &'static [&'static str] {
    let refused: Result<Config, Error> = Figment::from(Serialized::default("?", ())).extract();
    match refused.map_err(|error| error.kind) {
        Err(Kind::UnknownField(_, known)) => known,
        other => unreachable!("`Config` refuses fields that it does not have: {other:?}"),
    }
}

fn default_listen() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))
}

fn default_data_dir() -> PathBuf {
    PathBuf::from(".weir")
}

fn yes() -> bool {
    true
}
