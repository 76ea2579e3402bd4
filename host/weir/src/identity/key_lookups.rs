//! Look-ups of API keys in the database, such that they do not stampede.
//!
//! After a flush of the cache, every key is unknown to it at once. Requests with one key wait for one look-up, look-ups of
//! several keys share one statement, and what was found stands in the process until the shared cache has it: for at most
//! [`COPY_TTL`], and within one [`Epoch`] of the cache.
//!
//! **Invariant:** in one epoch, a node reads a key that works once at most, however many requests ask for it, until its copy ends.
//! **Invariant:** a copy is used only by requests that found no tombstone in the epoch in which it was read. So a key that was
//! revoked stays revoked: before a flush by its tombstone, after it by a new look-up.

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

/// How long a copy in the process is used.
const COPY_TTL: Duration = Duration::from_secs(60);

/// Copies that are kept; beyond them, each request reads for itself.
const MOST_COPIES: usize = 50_000;

/// Keys of one statement.
const BATCH: usize = 500;

/// Statements at once. More would take the database's connections from others.
const STATEMENTS: usize = 2;

/// What a look-up finds: the key's record, if there is one of that id.
pub type Found = Result<Option<Arc<StoredKey>>, Arc<sqlx::Error>>;

/// The look-ups of a node. Cheap to clone.
#[derive(Clone)]
pub struct KeyLookups(Arc<Inner>);

struct Inner {
    database: Database,
    clock: Clock,
    copies: Mutex<Copies>,
    queue: Mutex<Queue>,
    reads: Counter,
}

/// Two generations: when the younger one is as old as a copy may be, it takes the place of the older one.
struct Copies {
    young: HashMap<Box<str>, Arc<KeyCopy>>,
    old: HashMap<Box<str>, Arc<KeyCopy>>,
    since: Duration,
}

enum Slot<'a> {
    Known(Arc<KeyCopy>),
    Free(&'a mut HashMap<Box<str>, Arc<KeyCopy>>),
    Full,
}

/// What one look-up finds, or will find.
struct KeyCopy {
    epoch: Epoch,
    since: Duration,
    found: Shared<BoxFuture<'static, Found>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Box<str>, oneshot::Sender<Found>)>,
    /// Statements under way.
    running: usize,
}

/// A record, and whether another request's look-up found it.
pub struct Looked {
    /// What the look-up found.
    pub found: Found,
    /// Whether the look-up may have begun before this request came.
    pub is_shared: bool,
}

impl KeyLookups {
    /// Look-ups in a database; `reads` counts the keys that are asked for there.
    pub fn new(database: Database, clock: Clock, reads: Counter) -> Self {
        Self(Arc::new(Inner {
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

    /// The record of a key, as any request of this epoch has found it within [`COPY_TTL`], or finds it now.
    ///
    /// For requests that found no tombstone in this epoch.
    pub async fn find(&self, key_id: &str, epoch: Epoch, now: Millis) -> Looked {
        let since = self.0.clock.monotonic();
        let copy = match self.copies().find(key_id, epoch, since) {
            Slot::Known(copy) => Some((copy, true)),
            Slot::Full => None,
            Slot::Free(slot) => {
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
        // Who comes next looks again: a key that does not work now may be enabled, or be made.
        let works = |key: &Arc<StoredKey>| key.works(now);
        if !found
            .as_ref()
            .is_ok_and(|found| found.as_ref().is_some_and(works))
        {
            self.copies()
                .forget(key_id, |known| Arc::ptr_eq(known, &copy));
        }
        Looked { found, is_shared }
    }

    /// Forgets the copy of a key that is not as it was read any more.
    pub fn forget(&self, key_id: &str) {
        self.copies().forget(key_id, |_| true);
    }

    /// The record of a key as it is now: the look-up begins after this call.
    pub async fn read_alone(&self, key_id: &str) -> Looked {
        Looked {
            found: self.read(key_id).await,
            is_shared: false,
        }
    }

    /// Puts a key among those that the next statement asks for. It does so whether or not the future is polled.
    fn read(&self, key_id: &str) -> BoxFuture<'static, Found> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut queue = self.0.queue();
            queue.waiting.push_back((key_id.into(), sender));
            if queue.running < STATEMENTS {
                queue.running += 1;
                tokio::spawn(self.0.clone().read_batches());
            }
        }
        // The sender is dropped only where its task ends with the process.
        let gone = |_| Err(Arc::new(sqlx::Error::WorkerCrashed));
        receiver
            .map(move |found| found.unwrap_or_else(gone))
            .boxed()
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.0.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Reads what waits, until nothing does.
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

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copies {
    /// The copy of a key that a request of an epoch may use, or where to put one.
    fn find(&mut self, key_id: &str, epoch: Epoch, now: Duration) -> Slot<'_> {
        if now.saturating_sub(self.since) > COPY_TTL {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
        let known = self.young.get(key_id).or_else(|| self.old.get(key_id));
        let usable = known.filter(|copy| {
            // A late request of an earlier epoch may use what was read since.
            now.saturating_sub(copy.since) <= COPY_TTL && copy.epoch >= epoch
        });
        match usable.cloned() {
            Some(copy) => Slot::Known(copy),
            None if self.young.len() >= MOST_COPIES => Slot::Full,
            None => Slot::Free(&mut self.young),
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
