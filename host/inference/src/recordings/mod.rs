//! Recordings of a slot's exchanges from live traffic, on an operator's request: input for `weir plugin check` and
//! `weir plugin compare`, which replay them with another version.
//!
//! The database holds the wanted recordings, and every node polls it each second. A sampled exchange is recorded while
//! it runs, and enters a queue at its end; one task encrypts and writes the queue. The recorder skips exchanges that do
//! not fit into the queue, and incomplete ones: recording never delays a request, nor makes it fail.
//!
//! **Invariant:** weir records a slot only on an administrator's request, for a limited time, and within the requested
//! total of bytes over all nodes. **Invariant:** recordings are encrypted before they are written, and deleted
//! [`store::KEPT_FOR`] after their end.

pub mod routes;
pub mod store;
mod terms;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Interval, MissedTickBehavior};
use weir_dialects::Attachment;
use weir_ledger::{BootId, Ledger};
use weir_plugins::Plugins;
use weir_request::node::Core;
use weir_sandbox::adapter::bindings::adapter::{Header, Request};
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::random_bytes;
use weir_upstream::recorded::{RecordedAnswer, RecordedExchange, RecordedRequest};

pub use self::terms::RecordingTerms;

/// The poll interval for wanted recordings, and the number of polls between two deletions of old ones.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS_PER_PRUNING: u32 = 60;

/// The maximum bytes of an exchange, as JSON, request and responses together; larger ones are skipped.
const EXCHANGE_BYTES: usize = 1 << 20;

/// The maximum exchanges in the queue.
const QUEUE: usize = 32;

/// The parts of a gateway that the endpoints of recordings use. Cheap to clone.
#[derive(Clone)]
pub struct RecordingParts {
    /// The stores, the clock and the audit.
    pub core: Core,
    /// The ledger, for the live nodes.
    pub ledger: Ledger,
    /// The plugins, for the components of slots.
    pub plugins: Plugins,
    /// The recorder of this node.
    pub recorder: Recorder,
    /// The keys that encrypt recordings.
    pub sealing_keys: KeyRing,
}

impl Deref for RecordingParts {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// The recorder of exchanges. Cheap to clone.
#[derive(Clone)]
pub struct Recorder(Arc<RecorderInner>);

struct RecorderInner {
    /// Whether any slot is recorded: without a recording, requests check nothing else.
    is_on: AtomicBool,
    wanted: RwLock<BTreeMap<String, RecordingTerms>>,
    queue: mpsc::Sender<PendingExchange>,
    left_out: AtomicU64,
    clock: Clock,
    /// Notified when a recording begins on this node.
    look_now: Arc<Notify>,
}

/// The share of all exchanges.
pub const WHOLE: u16 = 10_000;

/// This run of a node, with the starts of its confirmed recordings.
struct RecordingNode {
    boot_id: BootId,
    look_now: Arc<Notify>,
    taken_up: BTreeMap<String, Millis>,
}

struct PendingExchange {
    slot: String,
    /// A [`RecordedExchange`], as JSON.
    content: Vec<u8>,
}

/// An exchange during recording.
#[derive(Default)]
pub struct OpenRecording {
    answers: Vec<RecordedAnswer>,
    bytes: usize,
    /// Whether the last response is incomplete so far.
    is_open: bool,
}

impl Recorder {
    /// Polls the database until the last clone is dropped, as this run of a node.
    pub fn start(database: Database, keys: KeyRing, clock: Clock, boot_id: &BootId) -> Self {
        let (queue, kept) = mpsc::channel(QUEUE);
        let look_now = Arc::new(Notify::new());
        let inner = Arc::new(RecorderInner {
            is_on: AtomicBool::new(false),
            wanted: RwLock::default(),
            queue,
            left_out: AtomicU64::new(0),
            clock: clock.clone(),
            look_now: look_now.clone(),
        });
        let store = store::RecordingStore::new(database, keys);
        let node = RecordingNode {
            boot_id: boot_id.clone(),
            look_now,
            taken_up: BTreeMap::new(),
        };
        tokio::spawn(follow(Arc::downgrade(&inner), store, clock, kept, node));
        Self(inner)
    }

    /// Polls immediately.
    pub fn look_now(&self) {
        self.0.look_now.notify_one();
    }

    /// Returns a tape for an exchange of this slot, if it is sampled.
    pub fn tape(&self, slot: &str) -> Option<OpenRecording> {
        if !self.0.is_on.load(Ordering::Relaxed) {
            return None;
        }
        let wanted = self.0.wanted.read();
        let wanted = *wanted.unwrap_or_else(PoisonError::into_inner).get(slot)?;
        if self.0.clock.now() >= wanted.until {
            return None;
        }
        let drawn = u64::from_ne_bytes(random_bytes()) % u64::from(WHOLE);
        (drawn < u64::from(wanted.share)).then(OpenRecording::default)
    }

    /// Queues a finished exchange, unless it is incomplete or too large. `request_bytes` is the size of the client's
    /// request, without attachments.
    pub fn keep(
        &self,
        tape: OpenRecording,
        slot: &str,
        request: &Request,
        request_bytes: usize,
        attachments: &[Attachment],
    ) {
        if tape.is_open || tape.answers.is_empty() {
            return;
        }
        let attached: usize = attachments.iter().map(|attached| attached.data.len()).sum();
        // This check precedes any copy. The written form is larger, and is measured below.
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

impl OpenRecording {
    /// Starts an upstream's response.
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

    /// Adds a piece of the response's body.
    pub fn body(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        // An oversized exchange is not written, so its bytes can be freed now.
        if self.bytes > EXCHANGE_BYTES {
            self.answers
                .iter_mut()
                .for_each(|answer| answer.body.clear());
        } else if let Some(answer) = self.answers.last_mut() {
            answer.body.extend_from_slice(bytes);
        }
    }

    /// Ends the response.
    pub fn end(&mut self) {
        self.is_open = false;
    }
}

async fn follow(
    recorder: Weak<RecorderInner>,
    store: store::RecordingStore,
    clock: Clock,
    mut kept: mpsc::Receiver<PendingExchange>,
    mut node: RecordingNode,
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
    inner: &RecorderInner,
    store: &store::RecordingStore,
    clock: &Clock,
    node: &mut RecordingNode,
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
            "skipped exchanges in a recording: they are too large or too many"
        );
    }
    Ok(())
}
