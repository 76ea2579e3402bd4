//! Exchanges of a slot's adapter, recorded from traffic while an operator wants them: for `weir plugin check` and
//! `weir plugin compare`, which play them to another version.
//!
//! What is wanted stands in the database, and every node looks there each second. A sampled exchange is recorded as it goes, and
//! handed to a queue when it has ended; one task seals and writes what is in it. What does not fit the queue is left out, and so is
//! what was cut off: a request never waits, and never fails, for being recorded.
//!
//! **Invariant:** nothing is recorded unless an administrator has asked for it, of this slot, for a time that is not over, and as
//! long as all of it is within the bytes asked for, over all nodes.
//! **Invariant:** it is sealed before it is written, and gone [`store::KEPT_FOR`] after the recording has ended.

pub mod routes;
pub mod store;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Interval, MissedTickBehavior};
use weir_dialects::Attachment;
use weir_ledger::BootId;
use weir_sandbox::adapter::bindings::adapter::{Header, Request};
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::random_bytes;

use weir_upstream::recorded::{RecordedAnswer, RecordedExchange, RecordedRequest};

/// How often a node looks for what is wanted, and how often for what is to be forgotten, in looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS_PER_PRUNING: u32 = 60;

/// Bytes of an exchange, as JSON, request and answers together; a larger one is left out.
const EXCHANGE_BYTES: usize = 1 << 20;

/// Exchanges that wait to be written.
const QUEUE: usize = 32;

/// What records. Cheap to clone.
#[derive(Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    /// Whether any slot is recorded: all that a request asks while none is.
    is_on: AtomicBool,
    wanted: RwLock<BTreeMap<String, RecordingTerms>>,
    queue: mpsc::Sender<PendingExchange>,
    left_out: AtomicU64,
    clock: Clock,
    /// Rung when something is wanted here that was not before.
    look_now: Arc<Notify>,
}

/// What is wanted of a slot.
#[derive(Debug, Clone, Copy)]
pub struct RecordingTerms {
    /// From when.
    pub begun_at: Millis,
    /// Of all its exchanges, in parts of ten thousand.
    pub share: u16,
    /// Until when.
    pub until: Millis,
}

/// The parts that a whole has.
pub const WHOLE: u16 = 10_000;

/// This run of a node, and the beginnings of the recordings that it has said to have taken up.
struct Node {
    boot_id: BootId,
    look_now: Arc<Notify>,
    taken_up: BTreeMap<String, Millis>,
}

struct PendingExchange {
    slot: String,
    /// A [`RecordedExchange`], as JSON.
    content: Vec<u8>,
}

/// An exchange that is recorded as it goes.
#[derive(Default)]
pub struct Tape {
    answers: Vec<RecordedAnswer>,
    bytes: usize,
    /// Whether the last answer has not been read to its end.
    is_open: bool,
}

impl Recorder {
    /// Follows what the database says is wanted, until the last clone is gone, as this run of a node.
    pub fn start(database: Database, keys: KeyRing, clock: Clock, boot_id: &BootId) -> Self {
        let (queue, kept) = mpsc::channel(QUEUE);
        let look_now = Arc::new(Notify::new());
        let inner = Arc::new(Inner {
            is_on: AtomicBool::new(false),
            wanted: RwLock::default(),
            queue,
            left_out: AtomicU64::new(0),
            clock: clock.clone(),
            look_now: look_now.clone(),
        });
        let store = store::RecordingStore::new(database, keys);
        let node = Node {
            boot_id: boot_id.clone(),
            look_now,
            taken_up: BTreeMap::new(),
        };
        tokio::spawn(follow(Arc::downgrade(&inner), store, clock, kept, node));
        Self(inner)
    }

    /// Looks for what is wanted without waiting for the next time.
    pub fn look_now(&self) {
        self.0.look_now.notify_one();
    }

    /// What an exchange of this slot is to be recorded on, if it is.
    pub fn tape(&self, slot: &str) -> Option<Tape> {
        if !self.0.is_on.load(Ordering::Relaxed) {
            return None;
        }
        let wanted = self.0.wanted.read();
        let wanted = *wanted.unwrap_or_else(PoisonError::into_inner).get(slot)?;
        if self.0.clock.now() >= wanted.until {
            return None;
        }
        let drawn = u64::from_ne_bytes(random_bytes()) % u64::from(WHOLE);
        (drawn < u64::from(wanted.share)).then(Tape::default)
    }

    /// Has an exchange that has ended be written, unless it was cut off or is too large. `request_bytes` is the size of the
    /// client's request, without attachments.
    pub fn keep(
        &self,
        tape: Tape,
        slot: &str,
        request: &Request,
        request_bytes: usize,
        attachments: &[Attachment],
    ) {
        if tape.is_open || tape.answers.is_empty() {
            return;
        }
        let attached: usize = attachments.iter().map(|attached| attached.data.len()).sum();
        // Before anything is copied. What is written is larger, and is measured below.
        if tape.bytes + request_bytes + attached > EXCHANGE_BYTES {
            self.leave_out();
            return;
        }
        let exchange = RecordedExchange {
            request: RecordedRequest::of(request, attachments),
            answers: tape.answers,
        };
        let content = match serde_json::to_vec(&exchange) {
            Ok(content) if content.len() <= EXCHANGE_BYTES => content,
            _ => {
                self.leave_out();
                return;
            }
        };
        let kept = PendingExchange {
            slot: slot.to_owned(),
            content,
        };
        if self.0.queue.try_send(kept).is_err() {
            self.leave_out();
        }
    }

    fn leave_out(&self) {
        self.0.left_out.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tape {
    /// An upstream has begun to answer.
    pub fn head(&mut self, status: u16, headers: &[Header]) {
        self.is_open = true;
        let headers_bytes = headers.iter().map(|(name, value)| name.len() + value.len());
        self.bytes = self.bytes.saturating_add(headers_bytes.sum());
        self.answers.push(RecordedAnswer {
            status,
            headers: headers.to_vec(),
            body: Vec::new(),
        });
    }

    /// It goes on.
    pub fn body(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        // What is too large is not kept, and need not be held until then.
        if self.bytes > EXCHANGE_BYTES {
            self.answers
                .iter_mut()
                .for_each(|answer| answer.body.clear());
        } else if let Some(answer) = self.answers.last_mut() {
            answer.body.extend_from_slice(bytes);
        }
    }

    /// It has answered.
    pub fn end(&mut self) {
        self.is_open = false;
    }
}

async fn follow(
    recorder: Weak<Inner>,
    store: store::RecordingStore,
    clock: Clock,
    mut kept: mpsc::Receiver<PendingExchange>,
    mut node: Node,
) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks: u32 = 0;
    loop {
        let done = tokio::select! {
            kept = kept.recv() => match kept {
                Some(PendingExchange { slot, content }) => store.keep(&slot, &content, clock.now()).await.map(drop),
                None => return,
            },
            _ = next_look(&mut ticks, &node.look_now) => {
                let Some(inner) = recorder.upgrade() else {
                    return;
                };
                looks = looks.wrapping_add(1);
                let looked = look(&inner, &store, &clock, &mut node).await;
                match looks.is_multiple_of(LOOKS_PER_PRUNING) && looked.is_ok() {
                    true => store.prune(clock.now()).await,
                    false => looked,
                }
            }
        };
        match done {
            Ok(()) => {}
            // The gateway has stopped.
            Err(sqlx::Error::PoolClosed) => return,
            Err(error) => tracing::debug!(%error, "recording exchanges"),
        }
    }
}

async fn next_look(ticks: &mut Interval, look_now: &Notify) {
    tokio::select! {
        _ = ticks.tick() => {}
        () = look_now.notified() => {}
    }
}

async fn look(
    inner: &Inner,
    store: &store::RecordingStore,
    clock: &Clock,
    node: &mut Node,
) -> sqlx::Result<()> {
    let wanted = store.wanted(clock.now()).await?;
    inner.is_on.store(!wanted.is_empty(), Ordering::Relaxed);
    *inner.wanted.write().unwrap_or_else(PoisonError::into_inner) = wanted.clone();
    node.taken_up.retain(|slot, _| wanted.contains_key(slot));
    for (slot, RecordingTerms { begun_at, .. }) in wanted {
        if node.taken_up.get(&slot) != Some(&begun_at) {
            store
                .note_node(&slot, node.boot_id.as_str(), begun_at)
                .await?;
            node.taken_up.insert(slot, begun_at);
        }
    }
    let left_out = inner.left_out.swap(0, Ordering::Relaxed);
    if left_out > 0 {
        tracing::warn!(
            left_out,
            "exchanges were not recorded: they are too large, or too many at once"
        );
    }
    Ok(())
}
