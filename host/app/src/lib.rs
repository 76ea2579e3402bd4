//! `App`: the features of a gateway, and their shared parts.
//!
//! [`App`] is composition only. [`start`] makes each feature with its parts, and [`parts`] hands them to handlers.
//! Features do not depend on `App`.

pub mod build;
pub mod config;
pub mod layers;
mod parts;
mod prepared;
pub mod privacy;
pub mod request_layer;
mod start;
pub mod tls;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use anyhow::anyhow;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_catalog::listing::CatalogDifference;
use weir_catalog::live::LiveCatalog;
use weir_identity::IdentityParts;
use weir_inference::InferenceParts;
use weir_ledger::Ledger;
use weir_payments::Payments;
use weir_plugins::Plugins;
use weir_request::admission::Admission;
use weir_request::audit::AuditEvent;
use weir_request::content_log::ContentLog;
use weir_request::failed_requests::FailedRequests;
use weir_request::listen_address::reachable;
use weir_request::log_export::LogExport;
use weir_request::metrics::Metrics;
use weir_request::node::Core;
use weir_request::traffic::Traffic;
use weir_sandbox::printable;
use weir_storage::background::WorkStatus;
use weir_storage::file_lock::FileLock;
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::environment;
use weir_swarms::swarm::Swarms;
use weir_swarms::tasks::store::TaskStore;
use weir_telemetry::spans::Tracer;
use weir_tools::Tools;
use weir_tools::remote::{RemoteTools, settings as mcp_settings};
use weir_tools::rules::Rules;

pub use self::build::build_catalog;
use self::layers::CatalogLayers;
pub use self::prepared::PreparedParts;
pub use self::start::open_core;
use crate::config::Config;
use crate::tls::Tls;

/// The state that requests share. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<AppState>);

/// The fields of [`App`], besides its [`Core`].
pub struct AppState {
    core: Core,
    /// The settings at the start. The catalog's settings may have been reloaded since: see `catalog`.
    pub config: Config,
    /// Authentication.
    pub identity: Arc<IdentityParts>,
    /// Model requests.
    pub inference: Arc<InferenceParts>,
    pub swarms: Arc<Swarms>,
    /// Tasks: swarms that run repeatedly.
    pub task_store: TaskStore,
    /// Tools of agents' models.
    pub tools: Tools,
    /// Remote MCP tools.
    pub remotes: RemoteTools,
    pub payments: Payments,
    /// The accounts and their credits.
    pub ledger: Ledger,
    pub catalog: Arc<LiveCatalog>,
    /// The administrators' changes of the catalog.
    pub layers: CatalogLayers,
    /// The loaded adapters and tools.
    pub plugins: Plugins,
    /// The metrics of `GET /metrics`.
    pub metrics: Arc<Metrics>,
    /// The queue of failed model requests.
    pub failed_requests: Arc<FailedRequests>,
    /// The log of prompts and responses, if the configuration allows one.
    pub content_log: Option<Arc<ContentLog>>,
    /// The sums of model requests.
    pub traffic: Arc<Traffic>,
    /// The tracer, if a collector is configured.
    pub tracer: Tracer,
    /// The log export, if it has a destination.
    pub log_export: Option<Arc<LogExport>>,
    /// The request queue, and the memory for bodies.
    pub admission: Arc<Admission>,
    /// The public listener's certificate; `None` without TLS.
    pub tls: Option<Tls>,
    /// The keys that encrypt stored responses.
    pub sealing_keys: KeyRing,
    /// Requests in progress, including those of disconnected clients.
    pub tasks: TaskTracker,
    /// Cancelled when a stopping gateway has waited long enough for them.
    pub shutdown: CancellationToken,
    /// Cancelled when the gateway begins to stop: readiness fails.
    pub draining: CancellationToken,
    /// The public service's address, once it listens.
    pub serves_at: OnceLock<SocketAddr>,
    _serving: Option<FileLock>,
}

impl Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

impl Deref for AppState {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl App {
    /// Applies the providers, models, filters, price factors, tool rules and MCP servers of a new configuration, or
    /// none of them if they are invalid. Requests and tool calls in progress complete with the old ones. Returns the
    /// differences of the catalog. The catalog layer stays. A secret that is in use and cannot be read any more is invalid.
    pub async fn take_up(&self, config: Config) -> anyhow::Result<CatalogDifference> {
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
        let mut lost = self.tools.lost_secrets(&rules);
        lost.extend(self.remotes.lost_secrets(&mcp_servers));
        if !lost.is_empty() {
            anyhow::bail!(
                "these secrets cannot be read any more:\n  {}",
                lost.join("\n  ")
            );
        }
        let catalog = self.layers.build(&config).await?;
        self.tools.take_up(rules);
        self.remotes.take_up(mcp_servers);
        let changed = catalog.activate();
        let lists = [
            ("added", &changed.added),
            ("removed", &changed.removed),
            ("changed", &changed.changed),
        ];
        let lists = lists.into_iter().filter(|(_, models)| !models.is_empty());
        let lists = lists.map(|(name, models)| format!("{name} {}", models.join(", ")));
        let models = lists.collect::<Vec<_>>().join("; ");
        self.audit.record(AuditEvent::ConfigurationReloaded {
            reason: match models.is_empty() {
                true => "models: no change".to_owned(),
                false => printable(&format!("models: {models}"), MOST_REASON_BYTES),
            },
        });
        Ok(changed)
    }
}

/// Maximum bytes of the models in the event of a reload.
const MOST_REASON_BYTES: usize = 500;

impl AppState {
    /// Returns the state of the work that this node repeats.
    pub fn background_work(&self) -> Vec<WorkStatus> {
        let mut works = self.background.list();
        works.extend(self.ledger.background().list());
        works.sort_unstable_by_key(|work| work.name);
        works
    }

    /// Returns the URL of the public service as this machine reaches it; `None` before it listens, or in an executor
    /// without the API.
    pub fn url(&self) -> Option<String> {
        let address = reachable(*self.serves_at.get()?);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Some(format!("{scheme}://{address}"))
    }
}
