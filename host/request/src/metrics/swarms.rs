//! Metrics of swarms.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The counts of swarms. Cheap to clone.
#[derive(Clone, Default)]
pub struct SwarmMetrics {
    open: Family<StatusLabels, Gauge>,
    ended: Family<StatusLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
}

impl SwarmMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Unfinished swarms of all nodes, by status";
        registry.register("swarm_runs_open", help, metrics.open.clone());
        let help = "Completed swarms of this node, by status";
        registry.register("swarm_runs_ended", help, metrics.ended.clone());
        metrics
    }

    /// Counts a completed swarm.
    pub fn end(&self, status: &'static str) {
        self.ended.get_or_create(&StatusLabels { status }).inc();
    }

    /// Sets the number of unfinished swarms with a status.
    pub(super) fn set_open(&self, status: &'static str, runs: i64) {
        self.open.get_or_create(&StatusLabels { status }).set(runs);
    }
}
