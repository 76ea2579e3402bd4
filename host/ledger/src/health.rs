//! How the ledger fares on this node: whether it can commit, and figures for those who watch it.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::credits::Credits;
use crate::operation::{Done, Outcome, Refusal};
use crate::store::StoreError;

/// A batch that takes longer than this does not end: no statement may take more than a second.
const STUCK: Duration = Duration::from_secs(5);

/// Operations of a batch, up to the most that there may be.
const BATCHES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Seconds, from a fast disk's `fsync` to a statement's time-out.
const COMMITS: [f64; 10] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0,
];

/// What the committer is about, and what has become of it.
#[derive(Debug)]
pub(crate) struct Health {
    state: Mutex<State>,
    metrics: LedgerMetrics,
}

#[derive(Debug, Default)]
struct State {
    /// Since when a batch is being committed, or tried again.
    busy_since: Option<Instant>,
    /// Whether the last attempt to write failed. Why is in the log: this is told to anybody who asks for readiness.
    has_failed: bool,
}

/// Figures since the start. Its clones are one.
#[derive(Debug, Clone)]
pub struct LedgerMetrics {
    batches: Histogram,
    commits: Histogram,
    failures: Counter,
    refused: Family<RefusedLabels, Counter>,
    overrun: Counter<f64, AtomicU64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    /// `insufficient` or `other`.
    reason: &'static str,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            metrics: LedgerMetrics {
                batches: Histogram::new(BATCHES),
                commits: Histogram::new(COMMITS),
                failures: Counter::default(),
                refused: Family::default(),
                overrun: Counter::default(),
            },
        }
    }

    pub(crate) fn metrics(&self) -> &LedgerMetrics {
        &self.metrics
    }

    /// Why nothing can be committed, in words; `None` while it can.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.lock();
        if state.has_failed {
            return Some("the database does not commit; the log says why".to_owned());
        }
        let busy = state.busy_since?.elapsed();
        (busy > STUCK).then(|| format!("a commit has not ended for {} s", busy.as_secs()))
    }

    /// A batch is committed, or tried again.
    pub(crate) fn begin(&self) {
        self.lock().busy_since.get_or_insert_with(Instant::now);
    }

    /// The committer has nothing to do.
    pub(crate) fn rest(&self) {
        self.lock().busy_since = None;
    }

    /// Notes what came of a batch, and how long that took.
    pub(crate) fn conclude(&self, result: &Result<Vec<Outcome>, StoreError>, took: Duration) {
        let has_failed = match result {
            Ok(outcomes) => {
                self.metrics.count(outcomes, took);
                false
            }
            // It answers, and does not like what it is asked.
            Err(StoreError::Rejected(_)) => false,
            Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) => {
                self.metrics.failures.inc();
                true
            }
        };
        let mut state = self.lock();
        state.busy_since = None;
        state.has_failed = has_failed;
    }

    /// Notes whether something else was written: while nobody asks for anything, nothing else tells.
    pub(crate) fn wrote(&self, result: &sqlx::Result<()>) {
        let mut state = self.lock();
        match result {
            Err(_) => state.has_failed = true,
            // What is still being tried says more.
            Ok(()) if state.busy_since.is_none() => state.has_failed = false,
            Ok(()) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerMetrics {
    /// Has them shown, under names that begin with `ledger`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("ledger");
        registry.register(
            "batch_operations",
            "Operations that were committed together",
            self.batches.clone(),
        );
        registry.register_with_unit(
            "commit",
            "How long the transaction of a batch took",
            Unit::Seconds,
            self.commits.clone(),
        );
        registry.register(
            "commit_failures",
            "Batches that the database did not commit, and that were tried again",
            self.failures.clone(),
        );
        registry.register(
            "refused",
            "Operations that were refused, such as holds for too few credits",
            self.refused.clone(),
        );
        registry.register(
            "overrun_credits",
            "Credits that requests cost beyond what their accounts could pay",
            self.overrun.clone(),
        );
    }

    fn count(&self, outcomes: &[Outcome], took: Duration) {
        self.batches.observe(outcomes.len() as f64);
        self.commits.observe(took.as_secs_f64());
        for outcome in outcomes {
            match outcome {
                Err(refusal) => {
                    let reason = match refusal {
                        Refusal::Insufficient { .. } => "insufficient",
                        Refusal::OverBudget(_) => "over_budget",
                        _ => "other",
                    };
                    self.refused.get_or_create(&RefusedLabels { reason }).inc();
                }
                Ok(Done::Settled { overrun, .. } | Done::Expired { overrun, .. })
                    if *overrun > Credits::ZERO =>
                {
                    self.overrun.inc_by(overrun.micro() as f64 / 1e6);
                }
                Ok(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full<T>() -> Result<T, StoreError> {
        Err(StoreError::Unavailable("the disk is full".into()))
    }

    #[test]
    fn what_fails_is_trouble_until_something_is_written() {
        let health = Health::new();
        assert_eq!(health.trouble(), None);
        health.begin();
        health.conclude(&full(), Duration::ZERO);
        let why = health.trouble().expect("it is in trouble");
        assert!(!why.contains("the disk is full"), "{why}");
        // It is tried again: that something else was written does not mean that this can be.
        health.begin();
        health.wrote(&Ok(()));
        assert!(health.trouble().is_some());
        health.conclude(&Ok(Vec::new()), Duration::ZERO);
        assert_eq!(health.trouble(), None);

        // Nobody waits for what has failed, so that nobody tries it again.
        health.begin();
        health.conclude(&full(), Duration::ZERO);
        health.rest();
        assert!(health.trouble().is_some());
        health.wrote(&Ok(()));
        assert_eq!(health.trouble(), None);
        health.wrote(&Err(sqlx::Error::PoolTimedOut));
        assert!(health.trouble().is_some());
    }
}
