//! What this node has done since it was started, for Prometheus: `GET /metrics`.
//!
//! Open to all, like `/health`: on the port for other services where there is one, else on the public one. Labels are
//! names of slots and upstreams and digests of components, never anything of a client's. The ledger's figures are its own
//! ([`LedgerMetrics`]).
//!
//! To add a figure, add a field to [`Metrics`] and register it in [`Metrics::new`].

pub mod requests;
pub mod routes;
pub mod summary;

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use weir_payments::metrics::PaymentMetrics;
use weir_plugins::metrics::PluginMetrics;
use weir_telemetry::export::ExportFigures;
use weir_upstream::breaker::Breakers;

use self::requests::RequestMetrics;
use weir_ledger::LedgerMetrics;

/// What is counted. Each gateway of a process has its own.
pub struct Metrics {
    registry: Registry,
    /// Of requests that are over.
    pub requests: Arc<RequestMetrics>,
    /// Figures of plugins.
    pub plugins: Arc<PluginMetrics>,
    /// Figures of payments.
    pub payments: Arc<PaymentMetrics>,
    /// API keys that were looked up in the database, since the cache did not know them.
    pub key_lookups: Counter,
    requests_in_progress: Gauge,
    requests_queued: Gauge,
    store_up: Family<StoreLabels, Gauge>,
    swarm_runs_open: Family<StatusLabels, Gauge>,
    swarm_runs_ended: Family<StatusLabels, Counter>,
    ledger_open_holds: Gauge,
    mcp_calls: Family<McpCallLabels, Counter>,
    mcp_tools_changed: Family<McpToolLabels, Counter>,
}

/// What is asked for when somebody looks, rather than counted as it happens.
pub struct GaugeReadings {
    /// Requests that are worked on.
    pub in_progress: usize,
    /// Requests that wait for their turn.
    pub queued: u32,
    /// Whether the database and the cache answer.
    pub stores: [(&'static str, bool); 2],
    /// Swarms that are not over, by status, of all nodes; none where the database does not say.
    pub swarms: Vec<(&'static str, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreLabels {
    /// `database` or `cache`.
    store: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct McpToolLabels {
    tool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct McpCallLabels {
    tool: String,
    /// `ok`, `error` or `blocked`.
    outcome: &'static str,
}

impl Metrics {
    /// Everything at zero, and what the ledger, the breakers of upstreams and the exporter of traces count.
    pub fn new(ledger: &LedgerMetrics, breakers: &Breakers, exported: &ExportFigures) -> Self {
        let mut registry = Registry::with_prefix("weir");
        ledger.register(&mut registry);
        breakers.register(&mut registry);
        exported.register(&mut registry);
        let requests = Arc::new(RequestMetrics::register(&mut registry));
        let plugins = Arc::new(PluginMetrics::register(&mut registry));
        let key_lookups = Counter::default();
        registry.register(
            "key_lookups",
            "API keys that were looked up in the database",
            key_lookups.clone(),
        );
        let requests_in_progress = Gauge::default();
        registry.register(
            "requests_in_progress",
            "Requests that this node works on at this moment",
            requests_in_progress.clone(),
        );
        let requests_queued = Gauge::default();
        registry.register(
            "requests_queued",
            "Requests that wait for their turn on this node at this moment",
            requests_queued.clone(),
        );
        let store_up = Family::default();
        registry.register(
            "store_up",
            "1 where the database, or the cache, answers this node",
            store_up.clone(),
        );
        let swarm_runs_open = Family::default();
        registry.register(
            "swarm_runs_open",
            "Swarms of all nodes that are not over, by status",
            swarm_runs_open.clone(),
        );
        let swarm_runs_ended = Family::default();
        registry.register(
            "swarm_runs_ended",
            "Swarms that ended on this node, by status",
            swarm_runs_ended.clone(),
        );
        let payments = Arc::new(PaymentMetrics::register(&mut registry));
        let ledger_open_holds = Gauge::default();
        registry.register(
            "ledger_open_holds",
            "Holds of this node that are open, as of when its database was last asked",
            ledger_open_holds.clone(),
        );
        let mcp_calls = Family::default();
        registry.register(
            "mcp_calls",
            "Calls of other servers' tools, by how they ended",
            mcp_calls.clone(),
        );
        let mcp_tools_changed = Family::default();
        registry.register(
            "mcp_tools_changed",
            "How often this node was the first to see that another server's tool had changed",
            mcp_tools_changed.clone(),
        );
        Self {
            registry,
            mcp_calls,
            mcp_tools_changed,
            requests,
            plugins,
            payments,
            key_lookups,
            requests_in_progress,
            requests_queued,
            store_up,
            swarm_runs_open,
            swarm_runs_ended,
            ledger_open_holds,
        }
    }

    /// Counts a call of another server's tool.
    pub fn mcp_call(&self, tool: &str, outcome: &'static str) {
        let labels = McpCallLabels {
            tool: tool.to_owned(),
            outcome,
        };
        self.mcp_calls.get_or_create(&labels).inc();
    }

    /// Counts a change of another server's tool.
    pub fn mcp_tool_changed(&self, tool: &str) {
        let labels = McpToolLabels {
            tool: tool.to_owned(),
        };
        self.mcp_tools_changed.get_or_create(&labels).inc();
    }

    /// Notes how many holds of this node are open.
    pub fn open_holds(&self, holds: i64) {
        self.ledger_open_holds.set(holds);
    }

    /// Notes what somebody who looks is to see of this moment.
    pub fn look(&self, looked: &GaugeReadings) {
        self.requests_in_progress
            .set(i64::try_from(looked.in_progress).unwrap_or(i64::MAX));
        self.requests_queued.set(looked.queued.into());
        for (store, is_up) in looked.stores {
            self.store_up
                .get_or_create(&StoreLabels { store })
                .set(is_up.into());
        }
        for &(status, runs) in &looked.swarms {
            self.swarm_runs_open
                .get_or_create(&StatusLabels { status })
                .set(runs);
        }
    }

    /// Counts a swarm that has ended, by its status.
    pub fn swarm_end(&self, status: &'static str) {
        self.swarm_runs_ended
            .get_or_create(&StatusLabels { status })
            .inc();
    }

    /// All figures in the text format of OpenMetrics.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
