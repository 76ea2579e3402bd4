//! Records that requests leave for the database: a bounded queue, and one task that gathers the records of a second and
//! writes them together.
//!
//! Each account has a limited number of records in a span of time, so that a flood of one account is not written. A metric counts
//! records above the limit, and those that do not fit into the queue or the database.
//!
//! **Invariant:** no request waits for the queue or the database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use weir_storage::clock::Millis;

/// The milliseconds of a minute.
pub const MINUTE_MS: i64 = 60_000;

/// The milliseconds of an hour.
pub const HOUR_MS: i64 = 3_600_000;

/// Accounts that a node counts in a span; it stores no records of further ones.
const MOST_ACCOUNTS: usize = 10_000;

/// Records in the queue.
const QUEUE: usize = 4_096;

/// Time for which records are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);

/// The limits of a queue and its writer.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// The span of time, in milliseconds, in which an account has a number of records.
    pub span_ms: i64,
    /// Maximum records of one write.
    pub batch: usize,
    /// Bytes after which a write takes no further record.
    pub batch_bytes: usize,
    /// Maximum bytes of all records that wait.
    pub queue_bytes: usize,
}

/// A queue of records. Its writer is a task.
pub struct WriteBehind<T> {
    queue: mpsc::Sender<Queued<T>>,
    room: Arc<Semaphore>,
    counts: Mutex<SpanCounts>,
    dropped: Counter,
}

/// A record on its way to the queue.
pub struct NewRecord<'a> {
    pub account: &'a str,
    /// The time of its end.
    pub at: Millis,
    /// The account's records of this span above which it is not stored.
    pub most: u32,
    /// The bytes that the record takes.
    pub bytes: usize,
}

enum Queued<T> {
    Record(Box<WaitingRecord<T>>),
    /// A caller waits until all records before this one are written.
    Flush(oneshot::Sender<()>),
}

struct WaitingRecord<T> {
    record: T,
    bytes: usize,
    /// Returned once the record is written or lost.
    _room: Option<OwnedSemaphorePermit>,
}

/// The writer's function: it returns the number of stored records.
type Write<T> = dyn Fn(Vec<T>) -> BoxFuture<'static, sqlx::Result<u64>> + Send + Sync;

/// This node's records of the current span, by account.
struct SpanCounts {
    span_ms: i64,
    start: i64,
    records: HashMap<String, u32>,
}

impl<T: Send + 'static> WriteBehind<T> {
    /// Starts the writer of records with this name in the log. The counter counts records that are not stored.
    pub fn start(
        limits: QueueLimits,
        name: &'static str,
        dropped: Counter,
        write: Box<Write<T>>,
    ) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let writer = Writer {
            limits,
            name,
            dropped: dropped.clone(),
            write,
        };
        tokio::spawn(writer.run(waiting));
        Self {
            queue,
            room: Arc::new(Semaphore::new(limits.queue_bytes)),
            counts: Mutex::new(SpanCounts::new(limits.span_ms)),
            dropped,
        }
    }

    /// Puts a record into the queue, or drops it. Returns whether its account has a place for it.
    pub fn put(&self, new: &NewRecord<'_>, record: T) -> bool {
        let has_place = self.has_place(new);
        match has_place {
            true => self.put_above_limit(record, new.bytes),
            false => {
                self.dropped.inc();
            }
        }
        has_place
    }

    /// Puts a record into the queue regardless of its account's limit, or drops it.
    pub fn put_above_limit(&self, record: T, record_bytes: usize) {
        let bytes = u32::try_from(record_bytes).unwrap_or(u32::MAX);
        let room = match bytes {
            0 => None,
            _ => match self.room.clone().try_acquire_many_owned(bytes) {
                Ok(room) => Some(room),
                Err(_) => {
                    self.dropped.inc();
                    return;
                }
            },
        };
        let waiting = WaitingRecord {
            record,
            bytes: record_bytes,
            _room: room,
        };
        if self
            .queue
            .try_send(Queued::Record(Box::new(waiting)))
            .is_err()
        {
            self.dropped.inc();
        }
    }

    fn has_place(&self, new: &NewRecord<'_>) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.admit(new.account, new.at, new.most)
    }

    /// Waits until all records so far are written, or lost.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.queue.send(Queued::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

impl SpanCounts {
    fn new(span_ms: i64) -> Self {
        Self {
            span_ms,
            start: 0,
            records: HashMap::new(),
        }
    }

    fn admit(&mut self, account: &str, now: Millis, most: u32) -> bool {
        let start = start_of(now, self.span_ms);
        if self.start != start {
            self.start = start;
            self.records.clear();
        }
        let is_full = self.records.len() >= MOST_ACCOUNTS;
        match self.records.get_mut(account) {
            Some(count) if *count >= most => false,
            Some(count) => {
                *count += 1;
                true
            }
            None if is_full => false,
            None => {
                self.records.insert(account.to_owned(), 1);
                true
            }
        }
    }
}

/// Returns the first moment of the span of a moment, both in milliseconds.
pub fn start_of(moment: Millis, span_ms: i64) -> i64 {
    moment.0 - moment.0.rem_euclid(span_ms)
}

struct Writer<T> {
    limits: QueueLimits,
    name: &'static str,
    dropped: Counter,
    write: Box<Write<T>>,
}

/// Records that are written together.
struct Batch<T> {
    records: Vec<T>,
    bytes: usize,
    rooms: Vec<Option<OwnedSemaphorePermit>>,
}

impl<T: Send + 'static> Writer<T> {
    async fn run(self, mut waiting: mpsc::Receiver<Queued<T>>) {
        while let Some(first) = waiting.recv().await {
            let mut batch = Batch {
                records: Vec::new(),
                bytes: 0,
                rooms: Vec::new(),
            };
            let mut flush = batch.gather(first);
            let until = Instant::now() + GATHER;
            while flush.is_none()
                && batch.records.len() < self.limits.batch
                && batch.bytes < self.limits.batch_bytes
            {
                match tokio::time::timeout_at(until, waiting.recv()).await {
                    Ok(Some(next)) => flush = batch.gather(next),
                    Ok(None) | Err(_) => break,
                }
            }
            let records = batch.records.len();
            if records > 0 {
                let stored = match (self.write)(batch.records).await {
                    Ok(stored) => stored,
                    Err(error) => {
                        tracing::warn!(%error, records, "cannot store {}", self.name);
                        0
                    }
                };
                self.dropped.inc_by((records as u64).saturating_sub(stored));
            }
            drop(batch.rooms);
            if let Some(flush) = flush {
                let _ = flush.send(());
            }
        }
    }
}

impl<T> Batch<T> {
    /// Adds a record, or returns the caller that waits for the records before it.
    fn gather(&mut self, waiting: Queued<T>) -> Option<oneshot::Sender<()>> {
        match waiting {
            Queued::Record(waiting) => {
                let WaitingRecord {
                    record,
                    bytes,
                    _room: room,
                } = *waiting;
                self.records.push(record);
                self.bytes += bytes;
                self.rooms.push(room);
                None
            }
            Queued::Flush(done) => Some(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const LIMITS: QueueLimits = QueueLimits {
        span_ms: HOUR_MS,
        batch: 500,
        batch_bytes: 100,
        queue_bytes: 1_000,
    };

    #[test]
    fn an_account_has_a_number_of_records_an_hour_and_others_have_their_own() {
        let mut counts = SpanCounts::new(HOUR_MS);
        let now = Millis(5 * HOUR_MS);
        let admitted = (0..700).filter(|_| counts.admit("usr_a", now, 300)).count();
        assert_eq!(admitted, 300);
        // A record with a higher limit still has a place.
        let admitted = (0..700).filter(|_| counts.admit("usr_a", now, 600)).count();
        assert_eq!(admitted, 300);
        assert!(counts.admit("usr_b", now, 600));
        assert!(!counts.admit("usr_a", Millis(now.0 + HOUR_MS - 1), 600));
        assert!(counts.admit("usr_a", Millis(now.0 + HOUR_MS), 600));
    }

    #[test]
    fn a_node_counts_a_limited_number_of_accounts() {
        let mut counts = SpanCounts::new(HOUR_MS);
        let admit = |number: usize| counts.admit(&format!("usr_{number}"), Millis(0), 600);
        assert_eq!(
            (0..10_002).map(admit).filter(|admitted| *admitted).count(),
            10_000
        );
        assert!(counts.admit("usr_0", Millis(0), 600));
    }

    /// Writers that never end do not hold up requests: what does not fit is counted. Failed writes are, too.
    #[tokio::test]
    async fn records_that_do_not_fit_or_cannot_be_written_are_counted() {
        let dropped = Counter::default();
        let (begun, mut began) = mpsc::unbounded_channel();
        let never = Box::new(move |records: Vec<u8>| {
            let _ = begun.send(records.len());
            std::future::pending().boxed()
        });
        let stuck = WriteBehind::start(LIMITS, "records", dropped.clone(), never);
        let new = |bytes| NewRecord {
            account: "usr_a",
            at: Millis(0),
            most: 600,
            bytes,
        };
        // The first write takes records of more than 100 bytes, and keeps their room.
        stuck.put(&new(600), 0);
        assert_eq!(began.recv().await, Some(1));
        for _ in 0..5 {
            stuck.put(&new(100), 0);
        }
        assert_eq!(dropped.get(), 1);

        let failing =
            Box::new(|_: Vec<u8>| std::future::ready(Err(sqlx::Error::PoolClosed)).boxed());
        let failing = WriteBehind::start(LIMITS, "records", dropped.clone(), failing);
        failing.put(&new(10), 0);
        failing.put(&new(10), 0);
        failing.flush().await;
        assert_eq!(dropped.get(), 3);
    }
}
