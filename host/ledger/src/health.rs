//! The health of the ledger on this node: whether it can commit, and its metrics.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::credits::Credits;
use crate::operation::{LedgerRefusal, OperationEffect, OperationOutcome};
use crate::store::LedgerStoreError;

/// A longer batch is stuck: no statement may take more than a second.
const STUCK: Duration = Duration::from_secs(5);

/// During a longer commit, no request begins without a durable hold: it might not be possible to charge it.
const LONG_COMMIT: Duration = Duration::from_millis(250);

/// Buckets of a batch's operations, up to the maximum.
const BATCHES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Buckets in seconds, from a fast disk's `fsync` to a statement's timeout.
const COMMITS: [f64; 10] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0,
];

#[derive(Debug)]
pub(crate) struct CommitterHealth {
    state: Mutex<CommitterState>,
    metrics: LedgerMetrics,
}

#[derive(Debug, Default)]
struct CommitterState {
    /// The start of the current batch, including its retries.
    busy_since: Option<Instant>,
    /// Whether the last write failed. Only the log has the reason, because the readiness endpoint is public.
    has_failed: bool,
}

/// Metrics since the start. All clones share them.
#[derive(Debug, Clone)]
pub struct LedgerMetrics {
    batches: Histogram,
    commits: Histogram,
    failures: Counter,
    refused: Family<RefusedLabels, Counter>,
    overrun: Counter<f64, AtomicU64>,
    openings: Family<OpeningLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OpeningLabels {
    /// `memory` or `database`.
    place: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    /// `insufficient` or `other`.
    reason: &'static str,
}

impl CommitterHealth {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            metrics: LedgerMetrics {
                batches: Histogram::new(BATCHES),
                commits: Histogram::new(COMMITS),
                failures: Counter::default(),
                refused: Family::default(),
                overrun: Counter::default(),
                openings: Family::default(),
            },
        }
    }

    pub(crate) fn metrics(&self) -> &LedgerMetrics {
        &self.metrics
    }

    /// Counts a request that begins: in memory, where it waits for nothing, or by a commit.
    pub(crate) fn count_opening(&self, is_in_memory: bool) {
        let place = if is_in_memory { "memory" } else { "database" };
        let openings = &self.metrics.openings;
        openings.get_or_create(&OpeningLabels { place }).inc();
    }

    /// Returns the reason why the ledger cannot commit, in words; `None` while it can.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.lock();
        if state.has_failed {
            return Some("the database does not commit; see the log for the reason".to_owned());
        }
        let busy = state.busy_since?.elapsed();
        (busy > STUCK).then(|| format!("a commit has been running for {} s", busy.as_secs()))
    }

    /// Returns whether the last write succeeded, and no commit takes long.
    pub(crate) fn is_well(&self) -> bool {
        let state = self.lock();
        !state.has_failed
            && state
                .busy_since
                .is_none_or(|since| since.elapsed() <= LONG_COMMIT)
    }

    /// Marks the start of a batch, or its retry.
    pub(crate) fn begin(&self) {
        self.lock().busy_since.get_or_insert_with(Instant::now);
    }

    /// Marks the committer as idle.
    pub(crate) fn rest(&self) {
        self.lock().busy_since = None;
    }

    /// Records the result and the duration of a batch.
    pub(crate) fn conclude(
        &self,
        result: &Result<Vec<OperationOutcome>, LedgerStoreError>,
        took: Duration,
    ) {
        let has_failed = match result {
            Ok(outcomes) => {
                self.metrics.count(outcomes, took);
                false
            }
            // The database responds, but rejects the operation.
            Err(LedgerStoreError::Rejected(_)) => false,
            Err(LedgerStoreError::Unavailable(_) | LedgerStoreError::Unknown(_)) => {
                self.metrics.failures.inc();
                true
            }
        };
        let mut state = self.lock();
        state.busy_since = None;
        state.has_failed = has_failed;
    }

    /// Records the result of another write: an idle committer has no result of its own.
    pub(crate) fn wrote(&self, result: &sqlx::Result<()>) {
        let mut state = self.lock();
        match result {
            Err(_) => state.has_failed = true,
            // The result of a batch that is being retried takes precedence.
            Ok(()) if state.busy_since.is_none() => state.has_failed = false,
            Ok(()) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, CommitterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerMetrics {
    /// Registers the metrics under names with the prefix `ledger`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("ledger");
        registry.register(
            "batch_operations",
            "Operations per committed batch",
            self.batches.clone(),
        );
        registry.register_with_unit(
            "commit",
            "Duration of a batch's transaction",
            Unit::Seconds,
            self.commits.clone(),
        );
        registry.register(
            "commit_failures",
            "Batches that the database did not commit, and that were retried",
            self.failures.clone(),
        );
        registry.register(
            "refused",
            "Rejected operations, such as holds with insufficient credits",
            self.refused.clone(),
        );
        registry.register(
            "overrun_credits",
            "Cost of requests beyond their accounts' credits",
            self.overrun.clone(),
        );
        registry.register(
            "openings",
            "Requests that began in memory, without waiting, or by a commit in the database",
            self.openings.clone(),
        );
    }

    fn count(&self, outcomes: &[OperationOutcome], took: Duration) {
        self.batches.observe(outcomes.len() as f64);
        self.commits.observe(took.as_secs_f64());
        for outcome in outcomes {
            match outcome {
                Err(refusal) => {
                    let reason = match refusal {
                        LedgerRefusal::Insufficient { .. } => "insufficient",
                        LedgerRefusal::OverBudget(_) => "over_budget",
                        _ => "other",
                    };
                    self.refused.get_or_create(&RefusedLabels { reason }).inc();
                }
                Ok(
                    OperationEffect::Settled { overrun, .. }
                    | OperationEffect::Expired { overrun, .. },
                ) if *overrun > Credits::ZERO => {
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

    fn full<T>() -> Result<T, LedgerStoreError> {
        Err(LedgerStoreError::Unavailable("the disk is full".into()))
    }

    #[test]
    fn what_fails_is_trouble_until_something_is_written() {
        let health = CommitterHealth::new();
        assert_eq!(health.trouble(), None);
        health.begin();
        health.conclude(&full(), Duration::ZERO);
        let why = health.trouble().expect("it is in trouble");
        assert!(!why.contains("the disk is full"), "{why}");
        // A successful other write does not prove that the retried batch can be written.
        health.begin();
        health.wrote(&Ok(()));
        assert!(health.trouble().is_some());
        health.conclude(&Ok(Vec::new()), Duration::ZERO);
        assert_eq!(health.trouble(), None);

        // No caller waits for the failed operation, so it is not retried.
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
