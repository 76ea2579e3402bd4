//! The queue of failures, and its writer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};

use super::record::{FailedRequest, MOST_AN_HOUR, hour_of};
use super::store;

/// Accounts that a node counts in an hour; it stores no failures of further ones.
const MOST_ACCOUNTS: usize = 10_000;

/// Failures in the queue.
const QUEUE: usize = 4_096;

/// Failures of one statement.
const BATCH: usize = 500;

/// Time for which failures are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);

/// The queue of failures.
pub struct FailedRequests {
    queue: mpsc::Sender<QueuedFailure>,
    counts: Mutex<HourCounts>,
    clock: Clock,
    dropped: Counter,
}

enum QueuedFailure {
    Failure(Box<FailedRequest>),
    /// A caller waits until all failures before this one are written.
    Flush(oneshot::Sender<()>),
}

/// This node's failures of the current hour, by account: they keep a flood of one account out of the queue.
#[derive(Default)]
struct HourCounts {
    hour: i64,
    failures: HashMap<String, u32>,
}

impl FailedRequests {
    /// Starts the writer. The counter counts failures that are not stored.
    pub fn start(database: Database, clock: Clock, dropped: Counter) -> Arc<Self> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(write(database, waiting, dropped.clone()));
        Arc::new(Self {
            queue,
            counts: Mutex::default(),
            clock,
            dropped,
        })
    }

    /// Records a failure that ends now.
    pub fn record(&self, failure: impl FnOnce(Millis) -> FailedRequest) {
        let now = self.clock.now();
        let failure = failure(now);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_admitted = counts.admit(&failure.account_id, now);
        drop(counts);
        let queued = QueuedFailure::Failure(Box::new(failure));
        if !is_admitted || self.queue.try_send(queued).is_err() {
            self.dropped.inc();
        }
    }

    /// Waits until all failures so far are written, or lost.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.queue.send(QueuedFailure::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

impl HourCounts {
    fn admit(&mut self, account: &str, now: Millis) -> bool {
        let hour = hour_of(now);
        if self.hour != hour {
            self.hour = hour;
            self.failures.clear();
        }
        let is_full = self.failures.len() >= MOST_ACCOUNTS;
        match self.failures.get_mut(account) {
            Some(count) if *count >= MOST_AN_HOUR => false,
            Some(count) => {
                *count += 1;
                true
            }
            None if is_full => false,
            None => {
                self.failures.insert(account.to_owned(), 1);
                true
            }
        }
    }
}

async fn write(database: Database, mut waiting: mpsc::Receiver<QueuedFailure>, dropped: Counter) {
    while let Some(first) = waiting.recv().await {
        let mut gathered = Vec::new();
        let mut flush = gather(&mut gathered, first);
        let until = Instant::now() + GATHER;
        while flush.is_none() && gathered.len() < BATCH {
            match tokio::time::timeout_at(until, waiting.recv()).await {
                Ok(Some(next)) => flush = gather(&mut gathered, next),
                Ok(None) | Err(_) => break,
            }
        }
        let stored = match store::insert(&database, &gathered).await {
            Ok(stored) => stored,
            Err(error) => {
                tracing::warn!(%error, failures = gathered.len(), "cannot store failed requests");
                0
            }
        };
        dropped.inc_by((gathered.len() as u64).saturating_sub(stored));
        if let Some(flush) = flush {
            let _ = flush.send(());
        }
    }
}

/// Adds a failure to the gathered ones, or returns the caller that waits for them.
fn gather(
    gathered: &mut Vec<FailedRequest>,
    waiting: QueuedFailure,
) -> Option<oneshot::Sender<()>> {
    match waiting {
        QueuedFailure::Failure(failure) => {
            gathered.push(*failure);
            None
        }
        QueuedFailure::Flush(done) => Some(done),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::HOUR_MS;
    use super::*;

    #[test]
    fn an_account_has_six_hundred_failures_an_hour_and_others_have_their_own() {
        let mut counts = HourCounts::default();
        let now = Millis(5 * HOUR_MS);
        let admitted = (0..700).filter(|_| counts.admit("usr_a", now)).count();
        assert_eq!(admitted, 600);
        assert!(counts.admit("usr_b", now));
        assert!(!counts.admit("usr_a", Millis(now.0 + HOUR_MS - 1)));
        assert!(counts.admit("usr_a", Millis(now.0 + HOUR_MS)));
    }

    #[test]
    fn a_node_counts_a_limited_number_of_accounts() {
        let mut counts = HourCounts::default();
        let admit = |number: usize| counts.admit(&format!("usr_{number}"), Millis(0));
        assert_eq!(
            (0..10_002).map(admit).filter(|admitted| *admitted).count(),
            10_000
        );
        assert!(counts.admit("usr_0", Millis(0)));
    }
}
