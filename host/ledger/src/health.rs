//! The health of the ledger on this node: whether it can commit, and its metrics.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
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

/// The two writers of a node, which do not wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Batches of operations.
    Batches,
    /// Appends to the log of settlements.
    Log,
}

#[derive(Debug, Default)]
struct CommitterState([WriterState; 2]);

#[derive(Debug, Default)]
struct WriterState {
    /// The start of the current batch, including its retries.
    busy_since: Option<Instant>,
    /// Whether the last write failed. Only the log has the reason, because the readiness endpoint is public.
    has_failed: bool,
    /// Whether it has settled a request.
    settles: bool,
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
    appends: Histogram,
    appended: Counter,
    tail: Gauge,
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
                appends: Histogram::new(COMMITS),
                appended: Counter::default(),
                tail: Gauge::default(),
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
        let CommitterState(writers) = &*self.lock();
        if writers.iter().any(|writer| writer.has_failed) {
            return Some("the database does not commit; see the log for the reason".to_owned());
        }
        let busy = writers.iter().filter_map(|writer| writer.busy_since).min();
        let busy = busy?.elapsed();
        (busy > STUCK).then(|| format!("a commit has been running for {} s", busy.as_secs()))
    }

    /// Returns whether the last writes succeeded, and no write of settlements takes long: those of the log, once there are
    /// any.
    pub(crate) fn is_well(&self) -> bool {
        let CommitterState(writers) = &*self.lock();
        let settling = match writers[Writer::Log as usize].settles {
            true => Writer::Log,
            false => Writer::Batches,
        };
        !writers.iter().any(|writer| writer.has_failed)
            && writers[settling as usize]
                .busy_since
                .is_none_or(|since| since.elapsed() <= LONG_COMMIT)
    }

    /// Marks the start of a batch, or its retry.
    pub(crate) fn begin(&self, writer: Writer) {
        let CommitterState(writers) = &mut *self.lock();
        writers[writer as usize]
            .busy_since
            .get_or_insert_with(Instant::now);
    }

    /// Marks a writer as idle.
    pub(crate) fn rest(&self, writer: Writer) {
        let CommitterState(writers) = &mut *self.lock();
        writers[writer as usize].busy_since = None;
    }

    /// Records the result and the duration of a batch.
    pub(crate) fn conclude(
        &self,
        result: &Result<Vec<OperationOutcome>, LedgerStoreError>,
        took: Duration,
    ) {
        if let Ok(outcomes) = result {
            self.metrics.count(outcomes, took);
        }
        self.note(Writer::Batches, result.as_ref().err(), false);
    }

    /// Records the result and the duration of an append of records to the log.
    pub(crate) fn conclude_append(
        &self,
        records: usize,
        result: &Result<bool, LedgerStoreError>,
        took: Duration,
    ) {
        if *result == Ok(true) {
            self.metrics.appends.observe(took.as_secs_f64());
            self.metrics.appended.inc_by(records as u64);
        }
        self.note(Writer::Log, result.as_ref().err(), true);
    }

    fn note(&self, writer: Writer, error: Option<&LedgerStoreError>, settles: bool) {
        // The database responds, but rejects the operation.
        let has_failed = !matches!(error, None | Some(LedgerStoreError::Rejected(_)));
        if has_failed {
            self.metrics.failures.inc();
        }
        let CommitterState(writers) = &mut *self.lock();
        writers[writer as usize] = WriterState {
            busy_since: None,
            has_failed,
            settles,
        };
    }

    /// Records the result of another write: an idle committer has no result of its own.
    pub(crate) fn wrote<T>(&self, result: &sqlx::Result<T>) {
        let CommitterState(writers) = &mut *self.lock();
        match result {
            Err(_) => writers[Writer::Batches as usize].has_failed = true,
            Ok(_) => {
                // The result of a batch that is being retried takes precedence.
                let idle = writers
                    .iter_mut()
                    .filter(|writer| writer.busy_since.is_none());
                idle.for_each(|writer| writer.has_failed = false);
            }
        }
    }

    /// Counts the records of the log that are not folded.
    pub(crate) fn count_tail(&self, records: usize) {
        self.metrics.tail.set(records as i64);
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
        registry.register_with_unit(
            "append",
            "Duration of an append to the log of settlements",
            Unit::Seconds,
            self.appends.clone(),
        );
        registry.register(
            "appended_records",
            "Ends of requests that the log of settlements has stored",
            self.appended.clone(),
        );
        registry.register(
            "unfolded_records",
            "Ends of requests in the log that their accounts do not show yet",
            self.tail.clone(),
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
        health.begin(Writer::Batches);
        health.conclude(&full(), Duration::ZERO);
        let why = health.trouble().expect("it is in trouble");
        assert!(!why.contains("the disk is full"), "{why}");
        // A successful other write does not prove that the retried batch can be written.
        health.begin(Writer::Batches);
        health.wrote(&Ok(()));
        assert!(health.trouble().is_some());
        health.conclude(&Ok(Vec::new()), Duration::ZERO);
        assert_eq!(health.trouble(), None);

        // No caller waits for the failed operation, so it is not retried.
        health.begin(Writer::Batches);
        health.conclude(&full(), Duration::ZERO);
        health.rest(Writer::Batches);
        assert!(health.trouble().is_some());
        health.wrote(&Ok(()));
        assert_eq!(health.trouble(), None);
        health.wrote::<()>(&Err(sqlx::Error::PoolTimedOut));
        assert!(health.trouble().is_some());
    }
}
