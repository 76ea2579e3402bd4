//! This node's metrics since its start, for Prometheus: `GET /metrics`.
//!
//! Open to all clients, like `/health`: on the listener for services if one exists, else on the public one. Labels are
//! names of slots and upstreams and digests of components, never a client's text. The ledger has its own metrics
//! ([`LedgerMetrics`]).
//!
//! To add a metric, add a field to [`Metrics`] and register it in [`Metrics::new`].

pub mod requests;
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

/// The counters. Each gateway of a process has its own.
pub struct Metrics {
    registry: Registry,
    /// Counters of completed requests.
    pub requests: Arc<RequestMetrics>,
    /// Metrics of plugins.
    pub plugins: Arc<PluginMetrics>,
    /// Figures of payments.
    pub payments: Arc<PaymentMetrics>,
    /// API keys that the cache did not have, so that the database was queried.
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

/// Gauges that are read for each scrape, rather than counted.
pub struct GaugeReadings {
    /// Requests in progress.
    pub in_progress: usize,
    /// Requests in the queue.
    pub queued: u32,
    /// Whether the database and the cache respond.
    pub stores: [(&'static str, bool); 2],
    /// Unfinished swarms of all nodes, by status; empty if the database does not respond.
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
    /// Registers all metrics at zero, including those of the ledger, the upstreams' breakers and the trace exporter.
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
            "API key lookups in the database",
            key_lookups.clone(),
        );
        let requests_in_progress = Gauge::default();
        registry.register(
            "requests_in_progress",
            "Requests in progress on this node",
            requests_in_progress.clone(),
        );
        let requests_queued = Gauge::default();
        registry.register(
            "requests_queued",
            "Requests in this node's queue",
            requests_queued.clone(),
        );
        let store_up = Family::default();
        registry.register(
            "store_up",
            "1 if the database, or the cache, responds to this node",
            store_up.clone(),
        );
        let swarm_runs_open = Family::default();
        registry.register(
            "swarm_runs_open",
            "Unfinished swarms of all nodes, by status",
            swarm_runs_open.clone(),
        );
        let swarm_runs_ended = Family::default();
        registry.register(
            "swarm_runs_ended",
            "Completed swarms of this node, by status",
            swarm_runs_ended.clone(),
        );
        let payments = Arc::new(PaymentMetrics::register(&mut registry));
        let ledger_open_holds = Gauge::default();
        registry.register(
            "ledger_open_holds",
            "Open holds of this node, at the last read of its database",
            ledger_open_holds.clone(),
        );
        let mcp_calls = Family::default();
        registry.register(
            "mcp_calls",
            "Calls of remote MCP tools, by outcome",
            mcp_calls.clone(),
        );
        let mcp_tools_changed = Family::default();
        registry.register(
            "mcp_tools_changed",
            "Changes of remote MCP tools that this node was the first to detect",
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

    /// Counts a call of a remote MCP tool.
    pub fn mcp_call(&self, tool: &str, outcome: &'static str) {
        let labels = McpCallLabels {
            tool: tool.to_owned(),
            outcome,
        };
        self.mcp_calls.get_or_create(&labels).inc();
    }

    /// Counts a change of a remote MCP tool.
    pub fn mcp_tool_changed(&self, tool: &str) {
        let labels = McpToolLabels {
            tool: tool.to_owned(),
        };
        self.mcp_tools_changed.get_or_create(&labels).inc();
    }

    /// Sets the number of this node's open holds.
    pub fn open_holds(&self, holds: i64) {
        self.ledger_open_holds.set(holds);
    }

    /// Sets the gauges of a scrape.
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

    /// Counts a finished swarm, by its status.
    pub fn swarm_end(&self, status: &'static str) {
        self.swarm_runs_ended
            .get_or_create(&StatusLabels { status })
            .inc();
    }

    /// Returns all metrics in the text format of OpenMetrics.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
