//! The start of a gateway: opens the stores, and makes each feature with its parts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_accounts::billing::summary_cache::drop_summary;
use weir_catalog::live::LiveCatalog;
use weir_egress::Guard;
use weir_identity::IdentityParts;
use weir_identity::key_lookups::KeyLookups;
use weir_identity::key_records::drop_plan;
use weir_identity::last_used::LastUsed;
use weir_identity::node_token::NodeTokens;
use weir_identity::pepper::Peppers;
use weir_identity::service_token::ServiceTokenSource;
use weir_identity::sign_in::SignInIssuers;
use weir_identity::verifiers::Verifiers;
use weir_inference::InferenceParts;
use weir_inference::deltas::Deltas;
use weir_inference::recordings::Recorder;
use weir_inference::response_cache::ResponseCache;
use weir_inference::routing::Routing;
use weir_inference::sessions::Sessions;
use weir_ledger::{LeaseSettings, Ledger, LedgerStore};
use weir_payments::settings::PaymentSecrets;
use weir_payments::{AccountCaches, PaymentParts, Payments};
use weir_plugins::Plugins;
use weir_plugins::bundled::BundledComponent;
use weir_plugins::oversight::Oversight;
use weir_plugins::progress::CompileProgress;
use weir_request::admission::Admission;
use weir_request::audit::Audit;
use weir_request::audit::retention::{self, RetentionDays};
use weir_request::content_log::ContentLog;
use weir_request::csv_export::Exports;
use weir_request::failed_requests::FailedRequests;
use weir_request::log_export::{LogExport, LogExportFigures};
use weir_request::metrics::Metrics;
use weir_request::node::Core;
use weir_request::traffic::Traffic;
use weir_sandbox::code_cache::CodeCache;
use weir_sandbox::compiler::Compiler;
use weir_storage::background::Background;
use weir_storage::clock::{Clock, Millis};
use weir_storage::expiring::ExpiringValues;
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::create_private_folder;
use weir_storage::{Cache, Database, database};
use weir_swarms::swarm::Swarms;
use weir_swarms::swarm::store::SwarmStore;
use weir_swarms::tasks::store::TaskStore;
use weir_telemetry::export::ExportFigures;
use weir_telemetry::spans::Tracer;
use weir_tools::page::ServedPage;
use weir_tools::remote::store::PinStore;
use weir_tools::remote::{Records, RemoteTools};
use weir_tools::task_credentials::TaskCredentials;
use weir_tools::{Tools, ToolsParts};
use weir_upstream::breaker::Breakers;
use weir_upstream::client::HttpClient;
use weir_upstream::file_reader::FileReader;

use super::layers::CatalogLayers;
use super::prepared::Exporters;
use super::{App, AppState, PreparedParts};
use crate::config::Config;
use crate::privacy;

/// Time that a request may take beyond its timeout, to hold and to settle.
const REQUEST_MARGIN: Duration = Duration::from_secs(60);

/// Opens only the stores.
pub async fn open_core(config: &Config) -> anyhow::Result<Core> {
    create_private_folder(&config.data_dir)?;
    open_stores(config, Clock::System).await
}

async fn open_stores(config: &Config, clock: Clock) -> anyhow::Result<Core> {
    let database_url = config.database_url();
    let (database, cache) = tokio::try_join!(
        Database::open_with(&database_url, config.stores.database()),
        Cache::open(config.redis_url.as_ref(), &clock, config.stores.cache()),
    )?;
    Ok(Core {
        audit: Audit::start(database.clone()),
        background: Background::default(),
        database,
        cache,
        clock,
        exports: Exports::default(),
    })
}

impl App {
    /// Opens the stores and loads the plugins. Logs the providers that are left out of the catalog.
    pub async fn start(
        config: Config,
        bundled: &[BundledComponent],
        shared_code: Option<CodeCache>,
        progress: &CompileProgress,
    ) -> anyhow::Result<Self> {
        let compiler = Compiler::new(config.plugins.compile.clone());
        let clock = Clock::System;
        Self::start_with(config, bundled, clock, compiler, shared_code, progress).await
    }

    /// Does the same with another clock, and with a compiler that may be another program.
    pub async fn start_with(
        config: Config,
        bundled: &[BundledComponent],
        clock: Clock,
        compiler: Compiler,
        shared_code: Option<CodeCache>,
        progress: &CompileProgress,
    ) -> anyhow::Result<Self> {
        create_private_folder(&config.data_dir)?;
        let serving = database::lock_for_serving(&config.database_url())?;
        // Errors of the configuration are reported immediately, independent of the stores.
        let (prepared, core) = tokio::try_join!(
            PreparedParts::of(&config, bundled, &clock, compiler, shared_code, progress),
            open_stores(&config, clock.clone()),
        )?;
        let layers = compare_with_stores(&config, &prepared, &core).await?;
        let ledger = start_ledger(&config, &core, &layers).await?;
        // An operator may have restored an earlier database and kept Redis, whose keys and users it may not know. Leases of
        // nodes cannot tell: a backup of a running gateway has them.
        let begun = core.cache.begin_epoch().await;
        begun.context("cannot invalidate the cache")?;
        let PreparedParts {
            plugins,
            key_peppers,
            sealing_keys,
            verifiers,
            sign_in,
            service_tokens,
            node_tokens,
            file_reader,
            http,
            rules,
            mcp_servers,
            guard,
            tls,
            webhook_key,
            payment_secrets,
            exporters,
        } = prepared;
        let base = BaseParts::new(
            config,
            core,
            layers.catalog(),
            ledger,
            plugins,
            sealing_keys,
            exporters,
        );
        let oversight = base.oversight();
        let remotes = base.remotes(&guard);
        remotes.take_up(mcp_servers);
        let filter_guard = guard.clone();
        let tools = Tools::new(ToolsParts {
            remotes: remotes.clone(),
            oversight: oversight.clone(),
            guard,
            rules,
            calls_at_once: base.config.plugins.tool_calls.get(),
            calls_per_account: base.config.plugins.tool_calls_per_account(),
            clock: base.core.clock.clone(),
            webhook_key,
            page: base.page().await?,
        });
        let identity = base.identity(verifiers, node_tokens, sign_in, key_peppers);
        let payments = base.payments(payment_secrets)?;
        let inference =
            base.inference(http, file_reader, filter_guard, oversight, payments.clone());
        let swarms = base.swarms(inference.clone(), tools.clone(), service_tokens);
        base.start_housekeeping(&identity, &inference);
        layers.follow();
        Ok(Self(Arc::new(AppState {
            task_store: TaskStore::new(base.core.database.clone(), base.sealing_keys.clone()),
            identity,
            inference,
            swarms,
            tools,
            remotes,
            payments,
            tls,
            admission: base.admission,
            ledger: base.ledger,
            catalog: base.catalog,
            layers,
            plugins: base.plugins,
            metrics: base.metrics,
            failed_requests: base.failed_requests,
            content_log: base.content_log,
            traffic: base.traffic,
            tracer: base.tracer,
            log_export: base.log_export,
            sealing_keys: base.sealing_keys,
            tasks: base.tasks,
            shutdown: base.shutdown,
            draining: base.draining,
            serves_at: OnceLock::new(),
            core: base.core,
            config: base.config,
            _serving: serving,
        })))
    }
}

/// Refuses keys that do not fit the database, and reads the installed plugins. Builds the catalog with its layer.
async fn compare_with_stores(
    config: &Config,
    prepared: &PreparedParts,
    core: &Core,
) -> anyhow::Result<CatalogLayers> {
    let database = &core.database;
    prepared.key_peppers.compare(database).await?;
    prepared.sealing_keys.compare(database).await?;
    database::at_start(|| prepared.plugins.sync(database))
        .await
        .context("cannot read the installed plugins")?;
    let breakers = Breakers::new(core.cache.clone());
    CatalogLayers::start(config, &prepared.plugins, core, breakers).await
}

async fn start_ledger(
    config: &Config,
    core: &Core,
    layers: &CatalogLayers,
) -> anyhow::Result<Ledger> {
    // Usage from before units were stored takes those of the catalog.
    let (store, kinds) = (
        LedgerStore::new(core.database.clone()),
        layers.catalog().load().model_kinds(),
    );
    database::at_start(|| store.keep_model_kinds(&kinds, core.clock.now()))
        .await
        .context("cannot store the units of models")?;
    let longest = config.timeouts.total() + config.limits.exchanges.hang_up_drain();
    let lease = LeaseSettings {
        longest_request: longest + REQUEST_MARGIN,
        ..config.ledger.lease()
    };
    Ledger::start(core.database.clone(), core.clock.clone(), lease)
        .await
        .context("cannot start the ledger")
}

/// The parts that several features share.
struct BaseParts {
    config: Config,
    core: Core,
    catalog: Arc<LiveCatalog>,
    ledger: Ledger,
    plugins: Plugins,
    sealing_keys: KeyRing,
    routing: Routing,
    metrics: Arc<Metrics>,
    failed_requests: Arc<FailedRequests>,
    content_log: Option<Arc<ContentLog>>,
    traffic: Arc<Traffic>,
    tracer: Tracer,
    log_export: Option<Arc<LogExport>>,
    admission: Arc<Admission>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    draining: CancellationToken,
}

impl BaseParts {
    fn new(
        config: Config,
        core: Core,
        catalog: Arc<LiveCatalog>,
        ledger: Ledger,
        plugins: Plugins,
        sealing_keys: KeyRing,
        exporters: Exporters,
    ) -> Self {
        let routing = Routing::new(core.cache.clone(), catalog.breakers().clone());
        let (spans, rows) = (ExportFigures::default(), LogExportFigures::default());
        let metrics = Metrics::new(ledger.metrics(), &routing.breakers, &spans, &rows);
        let instance = ledger.boot_id().as_str();
        let tracer = match exporters.traces {
            Some(traces) => Tracer::recording(traces.start(instance, spans)),
            None => Tracer::default(),
        };
        let requests = exporters.requests;
        let log_export = requests.map(|requests| Arc::new(requests.start(instance, rows)));
        let failed_requests = FailedRequests::start(
            core.database.clone(),
            sealing_keys.clone(),
            core.clock.clone(),
            metrics.failed_requests_dropped.clone(),
        );
        let content_log = config.content_log.days.map(|days| {
            let dropped = metrics.content_log_dropped.clone();
            let (database, keys) = (core.database.clone(), sealing_keys.clone());
            ContentLog::start(database, keys, core.clock.clone(), days, dropped)
        });
        let traffic = Traffic::start(
            core.database.clone(),
            core.clock.clone(),
            metrics.traffic_dropped.clone(),
        );
        Self {
            failed_requests,
            content_log,
            traffic,
            admission: Arc::new(Admission::new(&config.limits.admission)),
            metrics: Arc::new(metrics),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            draining: CancellationToken::new(),
            config,
            core,
            catalog,
            ledger,
            plugins,
            sealing_keys,
            routing,
            tracer,
            log_export,
        }
    }

    fn oversight(&self) -> Oversight {
        Oversight {
            plugins: self.plugins.clone(),
            database: self.core.database.clone(),
            cache: self.core.cache.clone(),
            clock: self.core.clock.clone(),
            metrics: self.metrics.plugins.clone(),
            tasks: self.tasks.clone(),
            max_traps: self.config.plugins.quarantine_traps,
        }
    }

    fn remotes(&self, guard: &Guard) -> RemoteTools {
        let records = Records {
            audit: self.core.audit.clone(),
            metrics: self.metrics.mcp.clone(),
            clock: self.core.clock.clone(),
        };
        RemoteTools::new(guard, PinStore::new(self.core.database.clone()), records)
    }

    /// Serves the page that agents of development mode may read.
    async fn page(&self) -> anyhow::Result<Option<ServedPage>> {
        if !self.config.is_dev() {
            return Ok(None);
        }
        let page = ServedPage::serve().await;
        page.map(Some).context("cannot serve the page for agents")
    }

    fn identity(
        &self,
        verifiers: Verifiers,
        node_tokens: NodeTokens,
        sign_in: SignInIssuers,
        key_peppers: Peppers,
    ) -> Arc<IdentityParts> {
        verifiers.warm_up();
        let (core, config) = (&self.core, &self.config);
        let lookups = self.metrics.key_lookups.clone();
        Arc::new(IdentityParts {
            core: core.clone(),
            verifiers,
            node_tokens,
            sign_in,
            key_peppers,
            key_lookups: KeyLookups::new(core.database.clone(), core.clock.clone(), lookups),
            last_used: LastUsed::default(),
            rate_limits: config.rate_limits.clone(),
            failure_policy: config.failure_policy,
            cors_origins: config.cors_origins.clone(),
            is_dev: config.is_dev(),
            has_development_users: config.is_dev() && config.identity.web.is_none(),
            data_dir: config.data_dir.clone(),
        })
    }

    fn payments(&self, secrets: PaymentSecrets) -> anyhow::Result<Payments> {
        Payments::new(PaymentParts {
            settings: self.config.payments.clone(),
            secrets,
            is_dev: self.config.is_dev(),
            database: self.core.database.clone(),
            cache: self.core.cache.clone(),
            account_caches: AccountCaches {
                drop_plan: |cache, user_id| drop_plan(cache, user_id).boxed(),
                drop_summary: |cache, account| drop_summary(cache, account).boxed(),
            },
            clock: self.core.clock.clone(),
            ledger: self.ledger.clone(),
            tracer: self.tracer.clone(),
            metrics: self.metrics.payments.clone(),
        })
    }

    fn inference(
        &self,
        http: HttpClient,
        file_reader: FileReader,
        guard: Guard,
        oversight: Oversight,
        payments: Payments,
    ) -> Arc<InferenceParts> {
        let (core, config) = (&self.core, &self.config);
        let recorder = Recorder::start(
            core.database.clone(),
            self.sealing_keys.clone(),
            core.clock.clone(),
            self.ledger.boot_id(),
        );
        let sessions = Sessions::new(
            ExpiringValues::new(core.database.clone(), core.cache.clone()),
            self.sealing_keys.clone(),
            core.clock.clone(),
            &config.sessions,
        );
        let response_cache = ResponseCache::new(
            config.response_cache.clone(),
            core.cache.clone(),
            self.sealing_keys.clone(),
            core.clock.clone(),
            self.metrics.response_cache.clone(),
        );
        Arc::new(InferenceParts {
            core: core.clone(),
            catalog: self.catalog.clone(),
            ledger: self.ledger.clone(),
            plugins: self.plugins.clone(),
            oversight,
            routing: self.routing.clone(),
            http,
            file_reader,
            guard,
            admission: self.admission.clone(),
            recorder,
            sessions,
            response_cache,
            payments,
            sealing_keys: self.sealing_keys.clone(),
            tasks: self.tasks.clone(),
            shutdown: self.shutdown.clone(),
            started_at: Millis::now(),
            timeouts: config.timeouts.clone(),
            ignore_fields: config.ignore_fields.clone(),
            exchange_limits: config.limits.exchanges.clone(),
            checkpoint_every: config.ledger.checkpoint_every(),
            hold_timeout: config.stores.hold(),
        })
    }

    fn swarms(
        &self,
        inference: Arc<InferenceParts>,
        tools: Tools,
        service_tokens: ServiceTokenSource,
    ) -> Arc<Swarms> {
        let database = &self.core.database;
        Arc::new(Swarms {
            store: SwarmStore::new(database.clone(), self.sealing_keys.clone()),
            wake: Arc::default(),
            deltas: Deltas::default(),
            inference,
            tools,
            credentials: TaskCredentials::new(database.clone(), self.sealing_keys.clone()),
            metrics: self.metrics.swarms.clone(),
            tracer: self.tracer.clone(),
            service_tokens,
            settings: self.config.swarms.clone(),
            draining: self.draining.clone(),
        })
    }

    /// Starts the tasks that follow other nodes, write behind requests, and delete old data.
    fn start_housekeeping(&self, identity: &IdentityParts, inference: &InferenceParts) {
        let core = &self.core;
        let (breakers, catalog) = (self.routing.breakers.clone(), self.catalog.clone());
        tokio::spawn(breakers.follow(move || catalog.load().candidate_keys()));
        self.plugins.follow(
            self.ledger.boot_id().clone(),
            core.database.clone(),
            core.cache.clone(),
            core.clock.clone(),
            self.metrics.plugins.clone(),
        );
        tokio::spawn(
            identity
                .last_used
                .clone()
                .write_behind(core.database.clone(), core.background.clone()),
        );
        tokio::spawn(retention::prune_for_ever(
            core.clone(),
            RetentionDays {
                audit: self.config.audit_days,
                content_log: self.config.content_log.days.unwrap_or_default(),
            },
        ));
        tokio::spawn(privacy::erase::finish_for_ever(core.clone()));
        tokio::spawn(
            inference
                .sessions
                .clone()
                .prune_for_ever(core.background.clone()),
        );
    }
}
