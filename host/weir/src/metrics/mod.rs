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
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use weir_telemetry::export::ExportFigures;
use weir_upstream::breaker::Breakers;

use self::requests::RequestMetrics;
use crate::plugins::component::Plugin;
use crate::plugins::counters::{Ended, FilterEffects};
use weir_ledger::LedgerMetrics;

/// Seconds, from the demo provider's answers to the longest streams.
const LATENCIES: [f64; 10] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];

/// What is counted. Each gateway of a process has its own.
pub struct Metrics {
    registry: Registry,
    /// Of requests that are over.
    pub requests: Arc<RequestMetrics>,
    /// API keys that were looked up in the database, since the cache did not know them.
    pub key_lookups: Counter,
    requests_in_progress: Gauge,
    requests_queued: Gauge,
    store_up: Family<StoreLabels, Gauge>,
    swarm_runs_open: Family<StatusLabels, Gauge>,
    swarm_runs_ended: Family<StatusLabels, Counter>,
    payment_events: Family<OutcomeLabels, Counter>,
    payment_events_open: Family<OutcomeLabels, Gauge>,
    plugin_first_token: Family<PluginLabels, Histogram, fn() -> Histogram>,
    plugin_exchanges: Family<ExchangeLabels, Counter>,
    plugin_latency: Family<PluginLabels, Histogram, fn() -> Histogram>,
    plugin_quarantines: Family<PluginLabels, Counter>,
    /// What filters did, by slot, digest and effect.
    filter_effects: Family<FilterLabels, Counter>,
    ledger_open_holds: Gauge,
    plugin_quarantines_withheld: Family<PluginLabels, Counter>,
    plugin_canary_share: Family<PluginLabels, Gauge<f64, AtomicU64>>,
    plugin_canaries_rolled_back: Family<PluginLabels, Counter>,
    plugin_canaries_promoted: Family<PluginLabels, Counter>,
    mcp_calls: Family<McpCallLabels, Counter>,
    mcp_tools_changed: Family<McpToolLabels, Counter>,
}

/// What is asked for when somebody looks, rather than counted as it happens.
pub struct Looked {
    /// Requests that are worked on.
    pub in_progress: usize,
    /// Requests that wait for their turn.
    pub queued: u32,
    /// Whether the database and the cache answer.
    pub stores: [(&'static str, bool); 2],
    /// Swarms that are not over, by status, of all nodes; none where the database does not say.
    pub swarms: Vec<(&'static str, i64)>,
    /// Events of payments that are not applied, by state, of all nodes; likewise.
    pub payment_events: Vec<(&'static str, i64)>,
}

/// How a canary ended without an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CanaryEnd {
    /// It was worse.
    RolledBack,
    /// It did well for long enough.
    Promoted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabels {
    slot: String,
    digest: String,
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
struct OutcomeLabels {
    /// `applied`, `ignored`, `waiting`, `failed`, or `given_up` after 72 hours of retries.
    outcome: &'static str,
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExchangeLabels {
    slot: String,
    digest: String,
    /// `ok`, `error`, `fault` or `trap`.
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FilterLabels {
    slot: String,
    digest: String,
    /// `refused`, `changed` or `stopped`.
    effect: &'static str,
}

impl Metrics {
    /// Everything at zero, and what the ledger, the breakers of upstreams and the exporter of traces count.
    pub fn new(ledger: &LedgerMetrics, breakers: &Breakers, exported: &ExportFigures) -> Self {
        let mut registry = Registry::with_prefix("weir");
        ledger.register(&mut registry);
        breakers.register(&mut registry);
        exported.register(&mut registry);
        let requests = Arc::new(RequestMetrics::register(&mut registry));
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
        let payment_events = Family::default();
        registry.register(
            "payment_events",
            "Attempts of this node to apply events of the payment processor, by outcome",
            payment_events.clone(),
        );
        let payment_events_open = Family::default();
        registry.register(
            "payment_events_open",
            "Events of the payment processor that wait or have failed, of all nodes",
            payment_events_open.clone(),
        );
        let plugin_first_token: Family<_, _, fn() -> _> =
            Family::new_with_constructor(|| Histogram::new(LATENCIES));
        registry.register_with_unit(
            "plugin_first_token",
            "How long it took until the first of a streamed answer",
            Unit::Seconds,
            plugin_first_token.clone(),
        );
        let ledger_open_holds = Gauge::default();
        registry.register(
            "ledger_open_holds",
            "Holds of this node that are open, as of when its database was last asked",
            ledger_open_holds.clone(),
        );
        let plugin_exchanges = Family::default();
        registry.register(
            "plugin_exchanges",
            "Exchanges of each component, or calls of a tool, by how they ended",
            plugin_exchanges.clone(),
        );
        let plugin_latency: Family<_, _, fn() -> _> =
            Family::new_with_constructor(|| Histogram::new(LATENCIES));
        registry.register_with_unit(
            "plugin_exchange",
            "How long exchanges took",
            Unit::Seconds,
            plugin_latency.clone(),
        );
        let filter_effects = Family::default();
        registry.register(
            "filter_effects",
            "Requests that a filter refused or changed, or whose answer it changed or stopped",
            filter_effects.clone(),
        );
        let plugin_quarantines = Family::default();
        registry.register(
            "plugin_quarantines",
            "Components that this node has taken out of service for their faults",
            plugin_quarantines.clone(),
        );
        let plugin_quarantines_withheld = Family::default();
        registry.register(
            "plugin_quarantines_withheld",
            "How often a component went on only since its slot has no other that is sound",
            plugin_quarantines_withheld.clone(),
        );
        let plugin_canary_share = Family::default();
        registry.register(
            "plugin_canary_share",
            "The share of accounts that a slot's canary serves on this node, of 1",
            plugin_canary_share.clone(),
        );
        let plugin_canaries_rolled_back = Family::default();
        registry.register(
            "plugin_canaries_rolled_back",
            "Canaries that this node has ended since they were worse than what serves",
            plugin_canaries_rolled_back.clone(),
        );
        let plugin_canaries_promoted = Family::default();
        registry.register(
            "plugin_canaries_promoted",
            "Canaries that this node has had serve all since they did well for long enough",
            plugin_canaries_promoted.clone(),
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
            key_lookups,
            requests_in_progress,
            requests_queued,
            store_up,
            swarm_runs_open,
            swarm_runs_ended,
            payment_events,
            payment_events_open,
            plugin_first_token,
            plugin_exchanges,
            plugin_latency,
            plugin_quarantines,
            filter_effects,
            ledger_open_holds,
            plugin_quarantines_withheld,
            plugin_canary_share,
            plugin_canaries_rolled_back,
            plugin_canaries_promoted,
        }
    }

    /// Notes which canaries this node serves with, by slot, and the share of each; others are over.
    pub fn canaries(&self, canaries: impl Iterator<Item = (Plugin, f64)>) {
        self.plugin_canary_share.clear();
        for (plugin, share) in canaries {
            let labels = labels(&plugin);
            self.plugin_canary_share.get_or_create(&labels).set(share);
        }
    }

    /// Counts a canary that has ended without an operator.
    pub fn canary_end(&self, plugin: &Plugin, end: CanaryEnd) {
        let family = match end {
            CanaryEnd::RolledBack => &self.plugin_canaries_rolled_back,
            CanaryEnd::Promoted => &self.plugin_canaries_promoted,
        };
        family.get_or_create(&labels(plugin)).inc();
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
    pub fn look(&self, looked: &Looked) {
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
        for &(outcome, events) in &looked.payment_events {
            self.payment_events_open
                .get_or_create(&OutcomeLabels { outcome })
                .set(events);
        }
    }

    /// Counts a swarm that has ended, by its status.
    pub fn swarm_end(&self, status: &'static str) {
        self.swarm_runs_ended
            .get_or_create(&StatusLabels { status })
            .inc();
    }

    /// Counts an attempt to apply an event of the payment processor.
    pub fn payment_event(&self, outcome: &'static str) {
        self.payment_events
            .get_or_create(&OutcomeLabels { outcome })
            .inc();
    }

    /// Counts an exchange, or a call of a tool; `first_token` where its answer was streamed.
    pub fn exchange(
        &self,
        plugin: &Plugin,
        ended: Ended,
        took: Duration,
        first_token: Option<Duration>,
    ) {
        let labels = labels(plugin);
        if let Some(first_token) = first_token {
            self.plugin_first_token
                .get_or_create(&labels)
                .observe(first_token.as_secs_f64());
        }
        self.plugin_latency
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
        let PluginLabels { slot, digest } = labels;
        let outcome = match ended {
            Ended::Well => "ok",
            Ended::InError => "error",
            Ended::InFault => "fault",
            Ended::InTrap => "trap",
        };
        let exchanges = ExchangeLabels {
            slot,
            digest,
            outcome,
        };
        self.plugin_exchanges.get_or_create(&exchanges).inc();
    }

    /// Counts what a filter did to a request and its answer.
    pub fn filter_effects(&self, plugin: &Plugin, effects: FilterEffects) {
        let PluginLabels { slot, digest } = labels(plugin);
        for (effect, has) in [
            ("refused", effects.refused),
            ("changed", effects.changed),
            ("stopped", effects.stopped),
        ] {
            let labels = FilterLabels {
                slot: slot.clone(),
                digest: digest.clone(),
                effect,
            };
            // A filter that has done nothing yet is at zero, and not missing.
            let counter = self.filter_effects.get_or_create(&labels);
            counter.inc_by(has.into());
        }
    }

    /// All figures in the text format of OpenMetrics.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Counts a component that was taken out of service.
    pub fn quarantine(&self, plugin: &Plugin) {
        self.plugin_quarantines.get_or_create(&labels(plugin)).inc();
    }

    /// Counts a component that would have been, if anything else were there to serve.
    pub fn quarantine_withheld(&self, plugin: &Plugin) {
        self.plugin_quarantines_withheld
            .get_or_create(&labels(plugin))
            .inc();
    }
}

fn labels(plugin: &Plugin) -> PluginLabels {
    PluginLabels {
        slot: plugin.slot().to_string(),
        digest: plugin.digest().to_string(),
    }
}
