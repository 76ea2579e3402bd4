//! Security events, kept: who failed to prove themselves, who was limited, whose keys came and went.
//!
//! Events are written behind: a request hands its event to a bounded queue and goes on, and one task
//! writes what waits in one transaction. A flood that outruns the database is counted, not kept.
//!
//! **Invariant:** no personal data and no secrets: opaque user and key ids, never an address, a token or a
//! key.
//!
//! To record another kind of event, add a variant to [`Event`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};

use crate::clock::Millis;
use crate::storage::Database;

/// Events that wait to be written; more are counted and dropped.
const QUEUE: usize = 4_096;

/// Events that one transaction writes.
const BATCH: usize = 256;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request did not prove who sent it.
    AuthenticationFailed {
        /// `api_key`, `web` or `service`.
        method: &'static str,
        /// Why, in a fixed vocabulary.
        reason: &'static str,
    },
    /// A client address failed too often and is blocked for a while.
    LockedOut,
    /// A request came too soon after others.
    RateLimited {
        /// Whose; unknown where the address was limited.
        user_id: Option<String>,
        /// `address` or `caller`.
        scope: &'static str,
    },
    /// A key was made.
    KeyCreated {
        /// Whose.
        user_id: String,
        /// Which.
        key_id: String,
    },
    /// A key was revoked.
    KeyRevoked {
        /// Whose.
        user_id: String,
        /// Which.
        key_id: String,
    },
}

/// Takes events. Cheap to clone.
#[derive(Clone)]
pub struct Audit {
    queue: mpsc::Sender<Waiting>,
    dropped: Arc<AtomicU64>,
}

enum Waiting {
    Event(Millis, Event),
    /// Somebody waits until all events before this one are written.
    Flush(oneshot::Sender<()>),
}

impl Audit {
    /// Starts the writer.
    pub fn start(database: Database) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        tokio::spawn(write(database, waiting, dropped.clone()));
        Self { queue, dropped }
    }

    /// Waits until all events so far are written, or lost.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.queue.send(Waiting::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }

    /// Records an event.
    pub fn record(&self, event: Event) {
        if self
            .queue
            .try_send(Waiting::Event(Millis::now(), event))
            .is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn write(database: Database, mut waiting: mpsc::Receiver<Waiting>, dropped: Arc<AtomicU64>) {
    let mut batch = Vec::with_capacity(BATCH);
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let (mut events, mut flushes) = (Vec::new(), Vec::new());
        for waiting in batch.drain(..) {
            match waiting {
                Waiting::Event(at, event) => events.push((at, event)),
                Waiting::Flush(done) => flushes.push(done),
            }
        }
        if !events.is_empty()
            && let Err(error) = insert(&database, &events).await
        {
            tracing::error!(%error, events = events.len(), "audit events are lost");
        }
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::error!(
                events = dropped,
                "audit events are lost: more than can be written"
            );
        }
        for done in flushes {
            let _ = done.send(());
        }
    }
}

async fn insert(database: &Database, events: &[(Millis, Event)]) -> sqlx::Result<()> {
    let mut transaction = database.begin().await?;
    for (at, event) in events {
        let (kind, method, reason, user_id, key_id) = match event {
            Event::AuthenticationFailed { method, reason } => (
                "authentication.failed",
                Some(*method),
                Some(*reason),
                None,
                None,
            ),
            Event::LockedOut => ("address.locked_out", None, None, None, None),
            Event::RateLimited { user_id, scope } => (
                "rate_limit.hit",
                None,
                Some(*scope),
                user_id.as_deref(),
                None,
            ),
            Event::KeyCreated { user_id, key_id } => (
                "api_key.created",
                None,
                None,
                Some(&**user_id),
                Some(&**key_id),
            ),
            Event::KeyRevoked { user_id, key_id } => (
                "api_key.revoked",
                None,
                None,
                Some(&**user_id),
                Some(&**key_id),
            ),
        };
        sqlx::query(
            "INSERT INTO audit_events (at, kind, method, reason, user_id, key_id) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(at.0)
        .bind(kind)
        .bind(method)
        .bind(reason)
        .bind(user_id)
        .bind(key_id)
        .execute(&mut transaction)
        .await?;
    }
    transaction.commit().await
}
