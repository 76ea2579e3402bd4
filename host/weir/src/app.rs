//! `App`: the state that requests share, and its construction.

mod parts;
mod prepared;
pub mod stores;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, anyhow};
use axum::extract::FromRef;
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_payments::{AccountCaches, PaymentParts, Payments};
use weir_plugins::Plugins;
use weir_plugins::bundled::Bundled;
use weir_plugins::oversight::Oversight;
use weir_plugins::progress::CompileProgress;
use weir_plugins::slots::Stores;
use weir_telemetry::export::ExportFigures;
use weir_telemetry::spans::Tracer;
use weir_upstream::client::HttpClient;

pub use self::prepared::Prepared;
use crate::admission::Admission;
use crate::audit::{Audit, retention};
use crate::billing::summary_cache::drop_summary;
use crate::catalog::filters::check_filters;
use crate::catalog::listing::{CatalogListing, Difference};
use crate::catalog::live::LiveCatalog;
use crate::catalog::{self, Catalog, LeftOut, Missing, Problem};
use crate::config::Config;
use crate::csv_export::Exports;
use crate::identity::key_lookups::KeyLookups;
use crate::identity::key_records::drop_plan;
use crate::identity::last_used::LastUsed;
use crate::identity::pepper::Peppers;
use crate::identity::service_token::ServiceTokenSource;
use crate::identity::verifiers::Verifiers;
use crate::inference::routing::Routing;
use crate::listen_address::reachable;
use crate::metrics::Metrics;
use crate::node::Core;
use crate::recordings::Recorder;
use crate::request::BodyReader;
use crate::server::tls::Tls;
use crate::sessions::Sessions;
use crate::swarm::Swarms;
use crate::swarm::store::SwarmStore;
use crate::tasks::store::TaskStore;
use crate::tools::page::Page;
use crate::tools::remote::settings as mcp_settings;
use crate::tools::remote::store::PinStore;
use crate::tools::remote::{Records, Remotes};
use crate::tools::rules::Rules;
use crate::tools::task_credentials::TaskCredentials;
use crate::tools::{Parts, Tools};
use weir_ledger::{LeaseSettings, Ledger};
use weir_sandbox::compiler::Compiler;
use weir_storage::clock::{Clock, Millis};
use weir_storage::expiring::ExpiringValues;
use weir_storage::file_lock::FileLock;
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::{create_private_folder, environment};
use weir_storage::{Cache, Database, database};

/// Time that a request may take beyond its timeout, to hold and to settle.
const REQUEST_MARGIN: Duration = Duration::from_secs(60);

/// The state that requests share. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

/// The fields of [`App`], besides its [`Core`].
pub struct Shared {
    core: Core,
    /// The settings at the start. The catalog's settings may have been reloaded since: see `catalog`.
    pub config: Config,
    /// Verifiers of web users' and services' tokens.
    pub verifiers: Verifiers,
    /// The accounts and their credits.
    pub ledger: Ledger,
    /// Times of the keys' last uses, not written yet.
    pub last_used: LastUsed,
    /// Database lookups of keys.
    pub key_lookups: KeyLookups,
    /// The active catalog.
    pub catalog: Arc<LiveCatalog>,
    /// The loaded adapters and tools.
    pub plugins: Plugins,
    /// Statistics of components, and their automatic deactivation.
    pub oversight: Oversight,
    /// Tools of agents' models.
    pub tools: Tools,
    /// Remote MCP tools.
    pub remotes: Remotes,
    /// The metrics of `GET /metrics`.
    pub metrics: Arc<Metrics>,
    /// The tracer, if a collector is configured.
    pub tracer: Tracer,
    /// The order of upstreams, and their circuit breakers.
    pub routing: Routing,
    /// The HTTP client for upstreams.
    pub http: HttpClient,
    /// The request queue, and the memory for bodies.
    pub admission: Arc<Admission>,
    /// The peppers of API keys.
    pub key_peppers: Peppers,
    /// The recorder of exchanges.
    pub recorder: Recorder,
    /// Messages of sessions.
    pub sessions: Sessions,
    /// Swarms, and the subscribers of their events.
    pub swarms: Swarms,
    /// Tasks: swarms that run repeatedly.
    pub task_store: TaskStore,
    /// Credentials of the tools of tasks' agents.
    pub task_credentials: TaskCredentials,
    /// Payments.
    pub payments: Payments,
    /// The public listener's certificate; `None` without TLS.
    pub tls: Option<Tls>,
    /// The keys that encrypt stored responses.
    pub sealing_keys: KeyRing,
    /// The source of the token for other services; `None` if not configured.
    pub service_tokens: Option<ServiceTokenSource>,
    /// Requests in progress, including those of disconnected clients.
    pub tasks: TaskTracker,
    /// Cancelled when a stopping gateway has waited long enough for them.
    pub shutdown: CancellationToken,
    /// Cancelled when the gateway begins to stop: readiness fails.
    pub draining: CancellationToken,
    /// The time of the start.
    pub started_at: Millis,
    /// The public service's address, once it listens.
    pub serves_at: OnceLock<SocketAddr>,
    _serving: Option<FileLock>,
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Deref for Shared {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl FromRef<App> for BodyReader {
    fn from_ref(app: &App) -> Self {
        Self {
            admission: app.admission.clone(),
            limits: app.config.limits.bodies.clone(),
        }
    }
}

impl FromRef<App> for Core {
    fn from_ref(app: &App) -> Self {
        app.core.clone()
    }
}

/// Opens only the stores.
pub async fn open_core(config: &Config) -> anyhow::Result<Core> {
    create_private_folder(&config.data_dir)?;
    let clock = Clock::System;
    let database_url = config.database_url();
    let (database, cache) = tokio::join!(
        Database::open_with(&database_url, config.stores.database()),
        Cache::open(config.redis_url.as_ref(), &clock, config.stores.cache())
    );
    let database = database?;
    Ok(Core {
        audit: Audit::start(database.clone()),
        database,
        cache: cache?,
        clock,
        exports: Exports::default(),
    })
}

impl App {
    /// Opens the stores and loads the plugins. Logs the providers that are left out of the catalog.
    pub async fn start(
        config: Config,
        bundled: &[Bundled],
        progress: &CompileProgress,
    ) -> anyhow::Result<Self> {
        let compiler = Compiler::new(config.plugins.compile.clone());
        Self::start_with(config, bundled, Clock::System, compiler, progress).await
    }

    /// Does the same with another clock, and with a compiler that may be another program.
    pub async fn start_with(
        config: Config,
        bundled: &[Bundled],
        clock: Clock,
        compiler: Compiler,
        progress: &CompileProgress,
    ) -> anyhow::Result<Self> {
        create_private_folder(&config.data_dir)?;
        let database_url = config.database_url();
        let serving = database::lock_for_serving(&database_url)?;
        // Errors of the configuration are reported immediately, independent of the stores.
        let (prepared, database, cache) = tokio::try_join!(
            Prepared::of(&config, bundled, &clock, compiler, progress),
            Database::open_with(&database_url, config.stores.database()),
            Cache::open(config.redis_url.as_ref(), &clock, config.stores.cache()),
        )?;
        let Prepared {
            plugins,
            key_peppers,
            sealing_keys,
            verifiers,
            service_tokens,
            http,
            rules,
            mcp_servers,
            guard,
            tls,
            webhook_key,
            payment_secrets,
            exporting,
        } = prepared;
        key_peppers.compare(&database).await?;
        sealing_keys.compare(&database).await?;
        database::at_start(|| plugins.sync(&database))
            .await
            .context("cannot read the installed plugins")?;
        let catalog = build_catalog(&config, &plugins).await?;
        report_left_out(&catalog);
        let catalog = Arc::new(LiveCatalog::new(catalog));
        verifiers.warm_up();
        let longest = config.timeouts.total() + config.limits.exchanges.hang_up_drain();
        let lease = LeaseSettings {
            longest_request: longest + REQUEST_MARGIN,
            ..config.ledger.lease()
        };
        let ledger = Ledger::start(database.clone(), clock.clone(), lease)
            .await
            .context("cannot start the ledger")?;
        let routing = Routing::new(cache.clone());
        let breakers = routing.breakers.clone();
        tokio::spawn(breakers.follow({
            let catalog = catalog.clone();
            move || catalog.load().candidate_keys()
        }));
        let exported = ExportFigures::default();
        let metrics = Metrics::new(ledger.metrics(), &routing.breakers, &exported);
        let metrics = Arc::new(metrics);
        let tracer = match exporting {
            Some(exporting) => {
                Tracer::recording(exporting.start(ledger.boot_id().as_str(), exported))
            }
            None => Tracer::default(),
        };
        plugins.follow(
            ledger.boot_id().clone(),
            database.clone(),
            cache.clone(),
            clock.clone(),
            metrics.plugins.clone(),
        );
        let tasks = TaskTracker::new();
        let oversight = Oversight {
            plugins: plugins.clone(),
            database: database.clone(),
            cache: cache.clone(),
            clock: clock.clone(),
            metrics: metrics.plugins.clone(),
            tasks: tasks.clone(),
            max_traps: config.plugins.quarantine_traps,
        };
        let page = match config.is_dev() {
            true => Some(
                Page::serve()
                    .await
                    .context("cannot serve the page for agents")?,
            ),
            false => None,
        };
        let audit = Audit::start(database.clone());
        let records = Records {
            audit: audit.clone(),
            metrics: metrics.clone(),
            clock: clock.clone(),
        };
        let pins = PinStore::new(database.clone());
        let remotes = Remotes::new(&guard, pins, records);
        remotes.take_up(mcp_servers);
        let tools = Tools::new(Parts {
            remotes: remotes.clone(),
            oversight: oversight.clone(),
            guard,
            rules,
            calls_at_once: config.plugins.tool_calls.get(),
            calls_per_account: config.plugins.tool_calls_per_account(),
            clock: clock.clone(),
            webhook_key,
            page,
        });
        let key_lookups =
            KeyLookups::new(database.clone(), clock.clone(), metrics.key_lookups.clone());
        let last_used = LastUsed::default();
        tokio::spawn(last_used.clone().write_behind(database.clone()));
        tokio::spawn(retention::prune_for_ever(
            database.clone(),
            clock.clone(),
            config.audit_days,
        ));
        let sessions = Sessions::new(
            ExpiringValues::new(database.clone(), cache.clone()),
            sealing_keys.clone(),
            clock.clone(),
            &config.sessions,
        );
        tokio::spawn(sessions.clone().prune_for_ever());
        let payments = Payments::new(PaymentParts {
            settings: config.payments.clone(),
            secrets: payment_secrets,
            is_dev: config.is_dev(),
            database: database.clone(),
            cache: cache.clone(),
            account_caches: AccountCaches {
                drop_plan: |cache, user_id| drop_plan(cache, user_id).boxed(),
                drop_summary: |cache, account| drop_summary(cache, account).boxed(),
            },
            clock: clock.clone(),
            ledger: ledger.clone(),
            tracer: tracer.clone(),
            metrics: metrics.payments.clone(),
        })?;
        let swarms = SwarmStore::new(database.clone(), sealing_keys.clone());
        let task_store = TaskStore::new(database.clone(), sealing_keys.clone());
        let recorder = Recorder::start(
            database.clone(),
            sealing_keys.clone(),
            clock.clone(),
            ledger.boot_id(),
        );
        Ok(Self(Arc::new(Shared {
            admission: Arc::new(Admission::new(&config.limits.admission)),
            recorder,
            sessions,
            swarms: Swarms::new(swarms),
            task_store,
            task_credentials: TaskCredentials::new(database.clone(), sealing_keys.clone()),
            payments,
            tls,
            verifiers,
            ledger,
            last_used,
            key_lookups,
            oversight,
            tools,
            remotes,
            metrics,
            tracer,
            http,
            routing,
            key_peppers,
            sealing_keys,
            service_tokens,
            tasks,
            shutdown: CancellationToken::new(),
            draining: CancellationToken::new(),
            started_at: Millis::now(),
            serves_at: OnceLock::new(),
            core: Core {
                audit,
                database,
                cache,
                clock,
                exports: Exports::default(),
            },
            config,
            catalog,
            plugins,
            _serving: serving,
        })))
    }

    /// Applies the providers, models, filters, price factors, tool rules and MCP servers of a new configuration, or
    /// none of them if they are invalid. Requests and tool calls in progress complete with the old ones. Returns the
    /// differences of the catalog.
    pub async fn take_up(&self, config: Config) -> anyhow::Result<Difference> {
        let config = Config {
            timeouts: self.config.timeouts.clone(),
            ..config
        };
        let unfit = |what: &str, problems: Vec<String>| {
            let problems = problems.join("\n  ");
            anyhow!("the settings of {what} are invalid:\n  {problems}")
        };
        let in_use = Config {
            filters: config.filters.clone(),
            ..self.config.clone()
        };
        if !self.plugins.has_room_for(prepared::needed_guests(&in_use)) {
            let filters = config.filters.len();
            anyhow::bail!(
                "filters: the reserved memory is too small for {filters} filters with limits.concurrent_requests; restart the \
                 gateway to reserve more"
            );
        }
        let rules = Rules::read(config.tools(), environment);
        let rules = rules.map_err(|problems| unfit("tools", problems))?;
        let mcp_servers = mcp_settings::read(&config.mcp, environment);
        let mcp_servers = mcp_servers.map_err(|problems| unfit("MCP servers", problems))?;
        let catalog = build_catalog(&config, &self.plugins).await?;
        report_left_out(&catalog);
        self.tools.take_up(rules);
        self.remotes.take_up(mcp_servers);
        let listing = CatalogListing::of(&catalog);
        let before = self.catalog.replace(catalog);
        Ok(listing.since(&CatalogListing::of(&before)))
    }
}

fn report_left_out(catalog: &Catalog) {
    for LeftOut {
        provider,
        why,
        models,
    } in &catalog.left_out
    {
        let models = models.join(", ");
        match why {
            Missing::Credential(_) => {
                tracing::info!(provider, models, "provider left out: {why}");
            }
            Missing::Adapter(_) => {
                tracing::error!(provider, models, "provider left out: {why}");
            }
        }
    }
}

impl Shared {
    /// Returns the URL of the public service as this machine reaches it; `None` before it listens, or in an executor
    /// without the API.
    pub fn url(&self) -> Option<String> {
        let address = reachable(*self.serves_at.get()?);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Some(format!("{scheme}://{address}"))
    }

    /// Returns the stores for operators' changes, and their announcement.
    pub fn stores(&self) -> Stores<'_> {
        Stores {
            database: &self.database,
            cache: &self.cache,
        }
    }
}

/// Builds the catalog; the error lists all its problems.
pub async fn build_catalog(config: &Config, plugins: &Plugins) -> anyhow::Result<Catalog> {
    let mut refused = catalog::check_options(&config.providers, plugins).await;
    refused.extend(check_filters(&config.filters, plugins).await);
    let built = Catalog::build(config.catalog(), plugins, |name| std::env::var(name).ok());
    let problems = match built {
        Ok(catalog) if refused.is_empty() => return Ok(catalog),
        Ok(_) => refused,
        Err(mut problems) => {
            problems.extend(refused);
            problems
        }
    };
    let lines = problems
        .iter()
        .map(|Problem { setting, what }| format!("\n  {setting}: {what}"));
    Err(anyhow!("{}", lines.collect::<String>())).context("the catalog's configuration is invalid")
}
