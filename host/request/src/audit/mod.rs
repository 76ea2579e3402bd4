//! The audit log of security events: failed authentications, rate limits, creation and revocation of keys.
//!
//! A request puts its event into a bounded queue and continues. One task gathers the events of a second, counts equal
//! ones, and writes them in one transaction. Repeatable events are aggregated for ten minutes ([`sums`]): a stranger
//! cannot fill the table, and the log has a line only for such a row. The log counts the events of a flood that exceeds
//! the queue. weir keeps events for `audit_days` ([`retention`]). New users are recorded in the transaction that creates
//! them, so no way to create one can forget it.
//!
//! **Invariant:** no personal data and no secrets: opaque user and key ids, never an address, a token or a
//! key.
//!
//! [`log`] reads stored events.
//!
//! To record another kind of event, add a variant to [`AuditEvent`].

mod actor;
mod event;
pub mod log;
mod occurrence;
pub mod retention;
mod sums;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::Transaction;

pub use self::actor::Actor;
pub use self::event::AuditEvent;
use self::occurrence::{EqualEvents, GatheredEvents, Occurrence, Rows};
use self::sums::EventSums;

/// Events in the queue; further events are counted and dropped.
const QUEUE: usize = 4_096;

/// Time for which events are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);

/// A handle that takes events. Cheap to clone.
#[derive(Clone)]
pub struct Audit {
    queue: mpsc::Sender<QueuedEvent>,
    dropped: Arc<AtomicU64>,
}

enum QueuedEvent {
    Event(Millis, Occurrence),
    /// A caller waits until all events before this one are written.
    Flush(oneshot::Sender<()>),
}

impl Audit {
    pub fn start(database: Database) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        tokio::spawn(write(database, waiting, dropped.clone()));
        Self { queue, dropped }
    }

    /// Waits until all events so far are written, or lost.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.queue.send(QueuedEvent::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }

    /// Records an event without a known actor.
    pub fn record(&self, event: AuditEvent) {
        self.send(Occurrence { event, actor: None });
    }

    pub fn record_by(&self, actor: &Actor, event: AuditEvent) {
        let actor = Some(actor.clone());
        self.send(Occurrence { event, actor });
    }

    fn send(&self, occurrence: Occurrence) {
        let queued = QueuedEvent::Event(Millis::now(), occurrence);
        if self.queue.try_send(queued).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn write(
    database: Database,
    mut waiting: mpsc::Receiver<QueuedEvent>,
    dropped: Arc<AtomicU64>,
) {
    let mut sums = EventSums::default();
    loop {
        let first = match sums.next_due() {
            None => waiting.recv().await,
            Some(due) => match tokio::time::timeout_at(due, waiting.recv()).await {
                Ok(first) => first,
                Err(_) => {
                    let rows = sums.take_due(Instant::now());
                    insert_or_report(&database, &rows).await;
                    continue;
                }
            },
        };
        let Some(first) = first else {
            return;
        };
        let mut gathered = GatheredEvents::new();
        let mut flush = gather(&mut gathered, first);
        let until = Instant::now() + GATHER;
        // A full queue's number of rows is enough for one transaction.
        while flush.is_none() && gathered.len() < QUEUE {
            match tokio::time::timeout_at(until, waiting.recv()).await {
                Ok(Some(next)) => flush = gather(&mut gathered, next),
                Ok(None) | Err(_) => break,
            }
        }
        let mut rows = sums.add(gathered, Instant::now());
        if flush.is_some() {
            rows.extend(sums.take_all(Instant::now()));
        }
        insert_or_report(&database, &rows).await;
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::error!(events = dropped, "audit events are lost: the queue is full");
        }
        if let Some(flush) = flush {
            let _ = flush.send(());
        }
    }
}

/// Adds an event to the gathered ones, or returns the caller that waits for them.
fn gather(gathered: &mut GatheredEvents, waiting: QueuedEvent) -> Option<oneshot::Sender<()>> {
    match waiting {
        QueuedEvent::Event(at, occurrence) => {
            let order = gathered.len();
            let first = EqualEvents {
                order,
                at,
                count: 0,
            };
            gathered.entry(occurrence).or_insert(first).count += 1;
            None
        }
        QueuedEvent::Flush(done) => Some(done),
    }
}

async fn insert_or_report(database: &Database, rows: &Rows) {
    let locked_out = rows.iter().filter_map(|(occurrence, alike)| {
        (occurrence.event == AuditEvent::LockedOut).then_some(alike.count)
    });
    let addresses: i64 = locked_out.sum();
    if addresses > 0 {
        tracing::warn!(
            addresses,
            "locked out addresses; `weir lockout list` shows them"
        );
    }
    if let Err(error) = insert(database, rows).await {
        tracing::error!(%error, events = rows.len(), "audit events are lost");
    }
}

async fn insert(database: &Database, rows: &Rows) -> sqlx::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut transaction = database.begin().await?;
    for (Occurrence { event, actor }, EqualEvents { at, count, .. }) in rows {
        insert_row(&mut transaction, event, actor.as_ref(), *at, *count).await?;
    }
    transaction.commit().await
}

/// Records an event in the transaction of its change.
pub async fn insert_within(
    transaction: &mut Transaction,
    event: &AuditEvent,
    actor: Option<&Actor>,
) -> sqlx::Result<()> {
    insert_row(transaction, event, actor, Millis::now(), 1).await
}

async fn insert_row(
    transaction: &mut Transaction,
    event: &AuditEvent,
    actor: Option<&Actor>,
    at: Millis,
    count: i64,
) -> sqlx::Result<()> {
    let columns = event.columns();
    sqlx::query(
        "INSERT INTO audit_events (at, count, kind, actor, method, reason, user_id, key_id) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(at.0)
    .bind(count)
    .bind(columns.kind)
    .bind(actor.map(Actor::as_str))
    .bind(columns.method)
    .bind(columns.reason)
    .bind(columns.user_id)
    .bind(columns.key_id)
    .execute(&mut *transaction)
    .await
    .map(drop)
}
