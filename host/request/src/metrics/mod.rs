//! This node's metrics since its start, for Prometheus: `GET /metrics`.
//!
//! Open to all clients, like `/health`: on the listener for services if one exists, else on the public one. Labels are
//! names of slots and upstreams and digests of components, never a client's text. The ledger has its own metrics
//! ([`LedgerMetrics`]).
//!
//! To add a metric, add a field to the struct of its group and register it there; for a new group, add a struct with
//! `register`, and call it in [`Metrics::new`].

mod gauges;
pub mod mcp;
pub mod requests;
pub mod response_cache;
pub mod swarms;

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use weir_ledger::LedgerMetrics;
use weir_payments::metrics::PaymentMetrics;
use weir_plugins::metrics::PluginMetrics;
use weir_telemetry::export::ExportFigures;
use weir_upstream::breaker::Breakers;

pub use self::gauges::GaugeReadings;
use self::gauges::Gauges;
use self::mcp::McpMetrics;
use self::requests::RequestMetrics;
use self::response_cache::ResponseCacheMetrics;
use self::swarms::SwarmMetrics;
use crate::log_export::LogExportFigures;

/// The metrics. Each gateway of a process has its own.
pub struct Metrics {
    registry: Registry,
    gauges: Gauges,
    /// Counters of completed requests.
    pub requests: Arc<RequestMetrics>,
    pub plugins: Arc<PluginMetrics>,
    pub payments: Arc<PaymentMetrics>,
    pub swarms: SwarmMetrics,
    /// Counters of remote MCP tools.
    pub mcp: McpMetrics,
    pub response_cache: ResponseCacheMetrics,
    /// 1 if the latest reload failed, so that an earlier configuration is active.
    pub reload_failed: Gauge,
    /// API keys that the cache did not have, so that the database was queried.
    pub key_lookups: Counter,
    /// Failed requests that are not stored.
    pub failed_requests_dropped: Counter,
    /// Prompts and responses that are not stored.
    pub content_log_dropped: Counter,
    /// Sums of requests that are not stored.
    pub traffic_dropped: Counter,
}

impl Metrics {
    /// Registers all metrics at zero, including those of the ledger, the upstreams' breakers, the exporters and the log.
    pub fn new(
        ledger: &LedgerMetrics,
        breakers: &Breakers,
        spans: &ExportFigures,
        rows: &LogExportFigures,
    ) -> Self {
        let mut registry = Registry::with_prefix("weir");
        ledger.register(&mut registry);
        breakers.register(&mut registry);
        spans.register(&mut registry);
        rows.register(&mut registry);
        weir_telemetry::lines::register(&mut registry);
        let reload_failed = Gauge::default();
        registry.register(
            "config_reload_failed",
            "1 if the latest reload of the configuration failed, so that the earlier one is active",
            reload_failed.clone(),
        );
        let key_lookups = Counter::default();
        let help = "API key lookups in the database";
        registry.register("key_lookups", help, key_lookups.clone());
        let failed_requests_dropped = Counter::default();
        registry.register(
            "failed_requests_dropped",
            "Failed requests that operators do not see: above an account's limit, or lost",
            failed_requests_dropped.clone(),
        );
        let content_log_dropped = Counter::default();
        registry.register(
            "content_log_dropped",
            "Prompts and responses that the content log does not have: above an account's limit, or lost",
            content_log_dropped.clone(),
        );
        let traffic_dropped = Counter::default();
        registry.register(
            "traffic_dropped",
            "Sums of requests of keys and organisations that memory had no room for",
            traffic_dropped.clone(),
        );
        Self {
            gauges: Gauges::register(&mut registry),
            requests: Arc::new(RequestMetrics::register(&mut registry)),
            plugins: Arc::new(PluginMetrics::register(&mut registry)),
            payments: Arc::new(PaymentMetrics::register(&mut registry)),
            swarms: SwarmMetrics::register(&mut registry),
            mcp: McpMetrics::register(&mut registry),
            response_cache: ResponseCacheMetrics::register(&mut registry),
            reload_failed,
            key_lookups,
            failed_requests_dropped,
            content_log_dropped,
            traffic_dropped,
            registry,
        }
    }

    pub fn set(&self, readings: &GaugeReadings) {
        self.gauges.set(readings);
        for &(status, runs) in &readings.swarms {
            self.swarms.set_open(status, runs);
        }
    }

    /// Returns all metrics in the text format of OpenMetrics.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
