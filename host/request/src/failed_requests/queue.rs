//! The queue of failures, and their reader.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use prometheus_client::metrics::counter::Counter;
use weir_ledger::LedgerStore;
use weir_ledger::store::history::EndedRequest;
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};
use weir_storage::ids;
use weir_storage::sealing::KeyRing;

use super::record::{FailedRequest, MOST_A_MINUTE};
use super::store::{self, FailureFilter, FailurePage, FailurePlace, MinuteCount};
use crate::write_behind::{MINUTE_MS, NewRecord, QueueLimits, WriteBehind, start_of};

const LIMITS: QueueLimits = QueueLimits {
    span_ms: MINUTE_MS,
    batch: 500,
    batch_bytes: 1 << 20,
    queue_bytes: 8 << 20,
};

/// Accounts and minutes whose failures wait to be counted in the database.
const MOST_COUNTS: usize = 10_000;

/// A failure, and its entry in the ledger; `None` if weir held no credits for it, or its entry is archived.
pub type JoinedFailure = (FailedRequest, Option<EndedRequest>);

/// The failures: a queue of new ones, and the stored ones.
pub struct FailedRequests {
    /// `None` stands for the counts, which wait beside the queue.
    queue: WriteBehind<Option<FailedRequest>>,
    surplus: Arc<SurplusCounts>,
    database: Database,
    keys: KeyRing,
    clock: Clock,
}

/// Failures beyond the limit that are not counted in the database yet, by account and minute.
#[derive(Default)]
struct SurplusCounts(Mutex<HashMap<(String, i64), i64>>);

impl SurplusCounts {
    /// Adds failures, and returns whether they are the first of their account and minute.
    fn add(&self, account: &str, minute: i64, requests: i64) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&(account.to_owned(), minute)) {
            *count += requests;
            return false;
        }
        let has_room = counts.len() < MOST_COUNTS;
        if has_room {
            counts.insert((account.to_owned(), minute), requests);
        }
        has_room
    }

    fn take(&self) -> Vec<MinuteCount> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = std::mem::take(&mut *counts).into_iter();
        let counts = counts.map(|((account_id, minute), requests)| MinuteCount {
            account_id,
            minute,
            requests,
        });
        counts.collect()
    }
}

impl FailedRequests {
    /// Starts the writer. The counter counts failures that are not stored.
    pub fn start(database: Database, keys: KeyRing, clock: Clock, dropped: Counter) -> Arc<Self> {
        let surplus = Arc::new(SurplusCounts::default());
        let writer = Writer {
            database: database.clone(),
            keys: keys.clone(),
            surplus: surplus.clone(),
        };
        let write = Box::new(move |items: Vec<Option<FailedRequest>>| {
            let writer = writer.clone();
            async move { writer.write(items).await }.boxed()
        });
        Arc::new(Self {
            queue: WriteBehind::start(LIMITS, "failed requests", dropped, write),
            surplus,
            database,
            keys,
            clock,
        })
    }

    /// Records a failure that ends now.
    pub fn record(&self, failure: impl FnOnce(Millis) -> FailedRequest) {
        let failure = failure(self.clock.now());
        let (account, at) = (failure.account_id.clone(), failure.at);
        let new = NewRecord {
            account: &account,
            at,
            most: MOST_A_MINUTE,
            bytes: failure.bytes(),
        };
        let is_counted = !self.queue.put(&new, Some(failure));
        if is_counted && self.surplus.add(&account, start_of(at, MINUTE_MS), 1) {
            self.queue.put_above_limit(None, 0);
        }
    }

    /// Returns up to `limit` failures of a filter before a position. With several conditions, a page may be shorter.
    pub async fn list(
        &self,
        filter: &FailureFilter,
        before: &FailurePlace,
        limit: u32,
    ) -> sqlx::Result<FailurePage> {
        store::list(&self.database, &self.keys, filter, before, limit).await
    }

    /// Does the same for failures before a time, with their entries in the ledger. Returns the position of the next page, too.
    pub async fn list_joined(
        &self,
        filter: &FailureFilter,
        to: Option<Millis>,
        before: &FailurePlace,
        limit: u32,
    ) -> sqlx::Result<(Vec<JoinedFailure>, Option<FailurePlace>)> {
        let end = to.map(|to| (to.0, String::new()));
        let before = end.as_ref().map_or(before, |end| before.min(end));
        let page = self.list(filter, before, limit).await?;
        Ok((self.join(page.failures).await?, page.next))
    }

    /// Joins failures with their accounts' entries in the ledger.
    pub async fn join(&self, failures: Vec<FailedRequest>) -> sqlx::Result<Vec<JoinedFailure>> {
        let holds = failures.iter();
        let holds = holds.filter_map(|failure| ids::hold_of_request(&failure.request_id));
        let store = LedgerStore::new(self.database.clone());
        let ended = store.find_requests(&holds.collect::<Vec<_>>()).await?;
        let by_id = ended
            .into_iter()
            .map(|ended| (ended.request_id.clone(), ended));
        let mut by_id: HashMap<_, _> = by_id.collect();
        let joined = failures.into_iter().map(|failure| {
            let ended = by_id.remove(&failure.request_id);
            let ended = ended.filter(|ended| ended.account.0 == failure.account_id);
            (failure, ended)
        });
        Ok(joined.collect())
    }

    /// Returns the failures among these requests, by the requests' ids.
    pub async fn find(&self, request_ids: &[&str]) -> sqlx::Result<HashMap<String, FailedRequest>> {
        store::find(&self.database, &self.keys, request_ids).await
    }

    /// Returns failures of a user in the order of their ids behind one.
    pub async fn list_of_user(
        &self,
        user_id: &str,
        after: &str,
        limit: u32,
    ) -> sqlx::Result<Vec<FailedRequest>> {
        store::list_of_user(&self.database, &self.keys, user_id, after, limit).await
    }

    /// Returns the number of an account's failures in a period that have no record.
    pub async fn count_unrecorded(
        &self,
        account_id: &str,
        from: Option<Millis>,
        to: Option<Millis>,
    ) -> sqlx::Result<i64> {
        store::count_unrecorded(&self.database, account_id, from, to).await
    }

    /// Waits until all failures so far are written, or lost.
    pub async fn flush(&self) {
        self.queue.flush().await;
    }
}

#[derive(Clone)]
struct Writer {
    database: Database,
    keys: KeyRing,
    surplus: Arc<SurplusCounts>,
}

impl Writer {
    /// Writes failures and counts; returns the number of written items.
    async fn write(&self, items: Vec<Option<FailedRequest>>) -> sqlx::Result<u64> {
        let all = items.len();
        let mut failures: Vec<_> = items.into_iter().flatten().collect();
        let counts = all - failures.len();
        failures.iter_mut().for_each(FailedRequest::redact);
        let stored = store::insert(&self.database, &self.keys, &failures).await?;
        // Records of other nodes took the places of these.
        let surplus = failures.iter();
        for failure in surplus.filter(|failure| !stored.contains(&failure.request_id)) {
            let minute = start_of(failure.at, MINUTE_MS);
            self.surplus.add(&failure.account_id, minute, 1);
        }
        let waiting = self.surplus.take();
        if let Err(error) = store::add_counts(&self.database, &waiting).await {
            for count in waiting {
                self.surplus
                    .add(&count.account_id, count.minute, count.requests);
            }
            tracing::warn!(%error, "cannot count failed requests");
        }
        Ok((stored.len() + counts) as u64)
    }
}
