//! Look-ups of API keys in the database that prevent a stampede.
//!
//! After a flush of the cache, all keys are missing at once. Requests with one key share one look-up, look-ups of
//! several keys share one statement, and the process keeps each result until the shared cache has it: for at most
//! [`COPY_TTL`], and within one [`Epoch`] of the cache.
//!
//! **Invariant:** in one epoch, a node reads an active key at most once until its copy expires, regardless of the
//! number of requests. **Invariant:** only requests that found no tombstone in the epoch of a copy use the copy.
//! Therefore, a revoked key stays revoked: before a flush by its tombstone, after it by a new look-up.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;
use weir_storage::Database;
use weir_storage::cache::Epoch;
use weir_storage::clock::{Clock, Millis};

use super::api_key::StoredKey;
use super::store;

/// The lifetime of a copy in the process.
const COPY_TTL: Duration = Duration::from_secs(60);

/// The maximum number of copies; beyond it, each request reads the database.
const MOST_COPIES: usize = 50_000;

/// The maximum keys of one statement.
const BATCH: usize = 500;

/// The maximum concurrent statements. More would take too many of the database's connections.
const STATEMENTS: usize = 2;

/// The result of a look-up: the key's record, if the key exists.
pub type KeyLookupResult = Result<Option<Arc<StoredKey>>, Arc<sqlx::Error>>;

/// The look-ups of a node. Cheap to clone.
#[derive(Clone)]
pub struct KeyLookups(Arc<KeyLookupsInner>);

struct KeyLookupsInner {
    database: Database,
    clock: Clock,
    copies: Mutex<Copies>,
    queue: Mutex<LookupQueue>,
    reads: Counter,
}

/// Copies in two generations: once the younger generation is as old as [`COPY_TTL`], it replaces the older one.
struct Copies {
    young: HashMap<Box<str>, Arc<KeyCopy>>,
    old: HashMap<Box<str>, Arc<KeyCopy>>,
    since: Duration,
}

enum CopySlot<'a> {
    Known(Arc<KeyCopy>),
    Free(&'a mut HashMap<Box<str>, Arc<KeyCopy>>),
    Full,
}

/// The pending or finished result of one look-up.
struct KeyCopy {
    epoch: Epoch,
    since: Duration,
    found: Shared<BoxFuture<'static, KeyLookupResult>>,
}

#[derive(Default)]
struct LookupQueue {
    waiting: VecDeque<(Box<str>, oneshot::Sender<KeyLookupResult>)>,
    /// Running statements.
    running: usize,
}

/// A record, and whether another request's look-up found it.
pub struct KeyLookup {
    /// The result of the look-up.
    pub found: KeyLookupResult,
    /// Whether the look-up may have begun before this request arrived.
    pub is_shared: bool,
}

impl KeyLookups {
    /// Returns the look-ups of a database; `reads` counts the keys that are read.
    pub fn new(database: Database, clock: Clock, reads: Counter) -> Self {
        Self(Arc::new(KeyLookupsInner {
            database,
            copies: Mutex::new(Copies {
                young: HashMap::new(),
                old: HashMap::new(),
                since: clock.monotonic(),
            }),
            clock,
            queue: Mutex::default(),
            reads,
        }))
    }

    /// Returns the record of a key, from a request of this epoch within the last [`COPY_TTL`], or from a new look-up.
    ///
    /// Only for requests that found no tombstone in this epoch.
    pub async fn find(&self, key_id: &str, epoch: Epoch, now: Millis) -> KeyLookup {
        let since = self.0.clock.monotonic();
        let copy = match self.copies().find(key_id, epoch, since) {
            CopySlot::Known(copy) => Some((copy, true)),
            CopySlot::Full => None,
            CopySlot::Free(slot) => {
                let copy = Arc::new(KeyCopy {
                    epoch,
                    since,
                    found: self.read(key_id).shared(),
                });
                slot.insert(key_id.into(), copy.clone());
                Some((copy, false))
            }
        };
        let Some((copy, is_shared)) = copy else {
            return self.read_alone(key_id).await;
        };
        let found = copy.found.clone().await;
        // The next request reads the database again, because an operator may enable the key, or create it.
        let works = |key: &Arc<StoredKey>| key.works(now);
        if !found
            .as_ref()
            .is_ok_and(|found| found.as_ref().is_some_and(works))
        {
            self.copies()
                .forget(key_id, |known| Arc::ptr_eq(known, &copy));
        }
        KeyLookup { found, is_shared }
    }

    /// Forgets the copy of a changed key.
    pub fn forget(&self, key_id: &str) {
        self.copies().forget(key_id, |_| true);
    }

    /// Returns the current record of a key: the look-up begins after this call.
    pub async fn read_alone(&self, key_id: &str) -> KeyLookup {
        KeyLookup {
            found: self.read(key_id).await,
            is_shared: false,
        }
    }

    /// Adds a key to the next statement. The look-up runs even if the future is never polled.
    fn read(&self, key_id: &str) -> BoxFuture<'static, KeyLookupResult> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut queue = self.0.queue();
            queue.waiting.push_back((key_id.into(), sender));
            if queue.running < STATEMENTS {
                queue.running += 1;
                tokio::spawn(self.0.clone().read_batches());
            }
        }
        // The sender is dropped only if its task ends with the process.
        let gone = |_| Err(Arc::new(sqlx::Error::WorkerCrashed));
        receiver
            .map(move |found| found.unwrap_or_else(gone))
            .boxed()
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.0.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyLookupsInner {
    /// Reads all waiting keys.
    async fn read_batches(self: Arc<Self>) {
        loop {
            let batch = {
                let mut queue = self.queue();
                let most = queue.waiting.len().min(BATCH);
                let batch: Vec<_> = queue.waiting.drain(..most).collect();
                if batch.is_empty() {
                    queue.running -= 1;
                    return;
                }
                batch
            };
            self.reads.inc_by(batch.len() as u64);
            let ids: Vec<&str> = batch.iter().map(|(id, _)| &**id).collect();
            match store::find_keys(&self.database, &ids).await {
                Ok(found) => {
                    let found: HashMap<_, _> = found
                        .into_iter()
                        .map(|(id, key)| (id, Arc::new(key)))
                        .collect();
                    for (id, sender) in batch {
                        let _ = sender.send(Ok(found.get(&*id).cloned()));
                    }
                }
                Err(error) => {
                    let error = Arc::new(error);
                    for (_, sender) in batch {
                        let _ = sender.send(Err(error.clone()));
                    }
                }
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, LookupQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copies {
    /// Returns the copy that a request of an epoch may use, or the place for a new one.
    fn find(&mut self, key_id: &str, epoch: Epoch, now: Duration) -> CopySlot<'_> {
        if now.saturating_sub(self.since) > COPY_TTL {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
        let known = self.young.get(key_id).or_else(|| self.old.get(key_id));
        let usable = known.filter(|copy| {
            // A late request of an earlier epoch may use a newer copy.
            now.saturating_sub(copy.since) <= COPY_TTL && copy.epoch >= epoch
        });
        match usable.cloned() {
            Some(copy) => CopySlot::Known(copy),
            None if self.young.len() >= MOST_COPIES => CopySlot::Full,
            None => CopySlot::Free(&mut self.young),
        }
    }

    fn forget(&mut self, key_id: &str, which: impl Fn(&Arc<KeyCopy>) -> bool) {
        for copies in [&mut self.young, &mut self.old] {
            if copies.get(key_id).is_some_and(&which) {
                copies.remove(key_id);
            }
        }
    }
}
