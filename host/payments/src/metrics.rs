//! The figures of payments for Prometheus. Labels are outcomes and states of events, never a user's data.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The figures of one node.
#[derive(Debug)]
pub struct PaymentMetrics {
    attempts: Family<OutcomeLabels, Counter>,
    open: Family<OutcomeLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    /// `applied`, `ignored`, `waiting`, `failed`, or `given_up` after 72 hours of retries.
    outcome: &'static str,
}

impl PaymentMetrics {
    /// Registers all figures, at zero.
    pub fn register(registry: &mut Registry) -> Self {
        let attempts = Family::default();
        registry.register(
            "payment_events",
            "Attempts of this node to apply events of the payment processor, by outcome",
            attempts.clone(),
        );
        let open = Family::default();
        registry.register(
            "payment_events_open",
            "Events of the payment processor that wait or have failed, of all nodes",
            open.clone(),
        );
        Self { attempts, open }
    }

    /// Counts an attempt to apply an event.
    pub(crate) fn count_attempt(&self, outcome: &'static str) {
        let labels = OutcomeLabels { outcome };
        self.attempts.get_or_create(&labels).inc();
    }

    /// Sets the number of events that are not applied, by state, of all nodes.
    pub fn set_open(&self, events: &[(&'static str, i64)]) {
        for &(outcome, events) in events {
            let labels = OutcomeLabels { outcome };
            self.open.get_or_create(&labels).set(events);
        }
    }
}
