//! The queue of failures.

use std::sync::Arc;

use futures_util::FutureExt as _;
use prometheus_client::metrics::counter::Counter;
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};

use super::record::{FailedRequest, MOST_AN_HOUR};
use super::store;
use crate::write_behind::{NewRecord, QueueLimits, WriteBehind};

/// Failures are small: their number is their limit.
const LIMITS: QueueLimits = QueueLimits {
    batch: 500,
    batch_bytes: usize::MAX,
    queue_bytes: 0,
};

/// The queue of failures.
pub struct FailedRequests {
    queue: WriteBehind<FailedRequest>,
    clock: Clock,
}

impl FailedRequests {
    /// Starts the writer. The counter counts failures that are not stored.
    pub fn start(database: Database, clock: Clock, dropped: Counter) -> Arc<Self> {
        let write = Box::new(move |failures: Vec<FailedRequest>| {
            let database = database.clone();
            async move { store::insert(&database, &failures).await }.boxed()
        });
        let queue = WriteBehind::start(LIMITS, "failed requests", dropped, write);
        Arc::new(Self { queue, clock })
    }

    /// Records a failure that ends now.
    pub fn record(&self, failure: impl FnOnce(Millis) -> FailedRequest) {
        let failure = failure(self.clock.now());
        let account = failure.account_id.clone();
        let new = NewRecord {
            account: &account,
            at: failure.at,
            most_an_hour: MOST_AN_HOUR,
            bytes: 0,
        };
        self.queue.put(&new, failure);
    }

    /// Waits until all failures so far are written, or lost.
    pub async fn flush(&self) {
        self.queue.flush().await;
    }
}
