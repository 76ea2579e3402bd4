//! A node's sums since its last write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};

use super::row::{EndedCall, HOUR_MS, RowPlace, Scope, TrafficSums};
use super::store;

/// Days for which sums are stored.
pub const KEPT_DAYS: i64 = 35;

/// Time between two writes.
const WRITE_EVERY: Duration = Duration::from_secs(10);

/// Rows in memory. Further rows of keys and accounts are dropped; the catalog bounds the others.
const MOST_ROWS: usize = 10_000;

/// Rows of one statement.
const BATCH: usize = 200;

/// This node's sums that are not written yet.
pub struct Traffic {
    rows: Mutex<BTreeMap<RowPlace, TrafficSums>>,
    /// Held during a write, so that a reader waits for it.
    writing: tokio::sync::Mutex<()>,
    database: Database,
    clock: Clock,
    dropped: Counter,
}

impl Traffic {
    /// Starts to write every 10 s. The counter counts rows of requests that memory has no room for.
    pub fn start(database: Database, clock: Clock, dropped: Counter) -> Arc<Self> {
        let traffic = Arc::new(Self {
            rows: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            database,
            clock,
            dropped,
        });
        let weak = Arc::downgrade(&traffic);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(WRITE_EVERY).await;
                let Some(traffic) = weak.upgrade() else {
                    return;
                };
                traffic.flush().await;
            }
        });
        traffic
    }

    /// Counts a request that ends now.
    pub fn record(&self, call: &EndedCall<'_>) {
        let hour = hour_of(self.clock.now());
        let sums = TrafficSums::of(call);
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let mut rows = self.rows();
        let mut add = |scope, account: &str, key| {
            let place = RowPlace {
                scope,
                hour,
                account: account.to_owned(),
                key: text(key),
                provider: text(call.provider),
                model: text(call.model),
            };
            if !add_bounded(&mut rows, place, &sums) {
                self.dropped.inc();
            }
        };
        add(Scope::Upstream, "", None);
        add(Scope::Account, call.account, None);
        if call.key.is_some() {
            add(Scope::Key, call.account, call.key);
        }
    }

    /// Writes all sums so far. If the database fails, they wait for the next write.
    pub async fn flush(&self) {
        let _writing = self.writing.lock().await;
        let rows = std::mem::take(&mut *self.rows());
        let rows: Vec<_> = rows.into_iter().collect();
        for (index, batch) in rows.chunks(BATCH).enumerate() {
            if let Err(error) = store::add(&self.database, batch).await {
                tracing::warn!(%error, "cannot write the sums of requests; weir tries again");
                self.put_back(&rows[index * BATCH..]);
                return;
            }
        }
    }

    fn put_back(&self, unwritten: &[(RowPlace, TrafficSums)]) {
        let mut rows = self.rows();
        for (place, sums) in unwritten {
            if !add_bounded(&mut rows, place.clone(), sums) {
                self.dropped.inc();
            }
        }
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<RowPlace, TrafficSums>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the first moment of the hour of a moment, in milliseconds.
fn hour_of(moment: Millis) -> i64 {
    moment.0 - moment.0.rem_euclid(HOUR_MS)
}

/// Adds sums to a row if it exists or has room.
fn add_bounded(
    rows: &mut BTreeMap<RowPlace, TrafficSums>,
    place: RowPlace,
    sums: &TrafficSums,
) -> bool {
    let is_full = rows.len() >= MOST_ROWS && place.scope != Scope::Upstream;
    match rows.get_mut(&place) {
        Some(row) => row.add(sums),
        None if is_full => return false,
        None => {
            rows.insert(place, *sums);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(scope: Scope, key: usize) -> RowPlace {
        RowPlace {
            scope,
            hour: 0,
            account: String::new(),
            key: format!("key_{key}"),
            provider: "p".to_owned(),
            model: "m".to_owned(),
        }
    }

    #[test]
    fn keys_have_limited_room_and_providers_always_have_some() {
        let mut rows = BTreeMap::new();
        let one = TrafficSums {
            requests: 1,
            ..TrafficSums::default()
        };
        let mut add = |place| add_bounded(&mut rows, place, &one);
        assert!((0..MOST_ROWS).all(|key| add(place(Scope::Key, key))));
        assert!(!add(place(Scope::Key, MOST_ROWS)));
        assert!(add(place(Scope::Key, 0)));
        assert!(add(place(Scope::Upstream, 0)));
        assert_eq!(rows[&place(Scope::Key, 0)].requests, 2);
    }
}
