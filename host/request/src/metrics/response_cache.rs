//! Metrics of the response cache.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The counters of the response cache. Cheap to clone.
#[derive(Clone, Default)]
pub struct ResponseCacheMetrics {
    requests: Family<CacheResultLabels, Counter>,
    stored_bytes: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheResultLabels {
    /// `hit`, `miss` or `bypass`.
    result: &'static str,
}

impl ResponseCacheMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Requests while the response cache is on, by its result";
        registry.register("response_cache_requests", help, metrics.requests.clone());
        let help = "Bytes that this node has stored in the response cache";
        registry.register(
            "response_cache_stored_bytes",
            help,
            metrics.stored_bytes.clone(),
        );
        metrics
    }

    pub fn count(&self, result: &'static str) {
        let labels = CacheResultLabels { result };
        self.requests.get_or_create(&labels).inc();
    }

    pub fn stored(&self, bytes: usize) {
        self.stored_bytes.inc_by(bytes as u64);
    }
}
