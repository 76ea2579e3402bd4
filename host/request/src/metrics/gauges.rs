//! Gauges that are read for each scrape, rather than counted.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use weir_storage::background::WorkStatus;

pub struct GaugeReadings {
    pub in_progress: usize,
    pub queued: u32,
    /// Whether this node's catalog lacks the newest layer.
    pub is_layer_unfit: bool,
    /// Whether the database and the cache respond.
    pub stores: [(&'static str, bool); 2],
    /// This node's open holds; `None` if the database does not respond.
    pub open_holds: Option<i64>,
    /// The work that the node repeats.
    pub background: Vec<WorkStatus>,
    /// Unfinished swarms of all nodes, by status; empty if the database does not respond.
    pub swarms: Vec<(&'static str, i64)>,
}

/// The gauges of requests, stores and holds.
pub(super) struct Gauges {
    requests_in_progress: Gauge,
    requests_queued: Gauge,
    store_up: Family<StoreLabels, Gauge>,
    ledger_open_holds: Gauge,
    catalog_layer_unfit: Gauge,
    background_last_success: Family<WorkLabels, Gauge>,
    background_failures: Family<WorkLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreLabels {
    /// `database` or `cache`.
    store: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkLabels {
    /// Its name, such as `remove expired sessions`.
    work: &'static str,
}

impl Gauges {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let store_up = Family::<StoreLabels, Gauge>::default();
        let help = "1 if the database, or the cache, responds to this node";
        registry.register("store_up", help, store_up.clone());
        let background_last_success = Family::<WorkLabels, Gauge>::default();
        let help = "Time of the last success of work in the background, in seconds since 1970";
        registry.register(
            "background_last_success_timestamp_seconds",
            help,
            background_last_success.clone(),
        );
        let background_failures = Family::<WorkLabels, Gauge>::default();
        let help = "Failures of work in the background since its last success";
        registry.register(
            "background_failures_in_a_row",
            help,
            background_failures.clone(),
        );
        let mut gauge = |name: &'static str, help: &'static str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        Self {
            requests_in_progress: gauge(
                "requests_in_progress",
                "Requests in progress on this node",
            ),
            requests_queued: gauge("requests_queued", "Requests in this node's queue"),
            ledger_open_holds: gauge(
                "ledger_open_holds",
                "Open holds of this node, at the last read of its database",
            ),
            catalog_layer_unfit: gauge(
                "catalog_layer_unfit",
                "1 if the newest catalog layer does not fit this node, which keeps its catalog",
            ),
            store_up,
            background_last_success,
            background_failures,
        }
    }

    pub(super) fn set(&self, readings: &GaugeReadings) {
        self.requests_in_progress
            .set(i64::try_from(readings.in_progress).unwrap_or(i64::MAX));
        self.requests_queued.set(readings.queued.into());
        self.catalog_layer_unfit.set(readings.is_layer_unfit.into());
        for (store, is_up) in readings.stores {
            self.store_up
                .get_or_create(&StoreLabels { store })
                .set(is_up.into());
        }
        for status in &readings.background {
            let labels = WorkLabels { work: status.name };
            let failures = i64::try_from(status.failures_in_a_row).unwrap_or(i64::MAX);
            self.background_failures
                .get_or_create(&labels)
                .set(failures);
            if let Some(at) = status.last_success {
                let last_success = self.background_last_success.get_or_create(&labels);
                last_success.set(at.0 / 1_000);
            }
        }
        if let Some(holds) = readings.open_holds {
            self.ledger_open_holds.set(holds);
        }
    }
}
