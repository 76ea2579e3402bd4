//! The output of agents' models as it arrives, for listeners at this node.
//!
//! A model call gets a plain response, which is stored so that its executor can request it again. Meanwhile, this
//! module publishes its text, piece by piece. The pieces are only for display and are not stored: listeners that
//! connect late, read slowly, or use another node miss some of them. The complete output is in the event at the agent's
//! end.
//!
//! The same channels notify waiters of writes to a run ([`Deltas::watch`]), within this process only.
//!
//! **Invariant:** listeners change nothing: the upstream streams the response only if it would without them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use weir_sandbox::adapter::bindings::chat::{Block, Event};

/// The maximum unread pieces of a listener. Beyond it, the listener loses the oldest.
const WAITING: usize = 256;

/// The channels of runs with listeners. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Deltas(Arc<Mutex<HashMap<String, Weak<Channel>>>>);

/// A model call that is a step of a swarm. Its executor, or another one, repeats it until it has the response.
pub struct StepCall {
    /// The publisher of the output as it arrives.
    pub publisher: Option<DeltaPublisher>,
    /// Cancelled when nobody needs the response: the swarm is cancelled, or over.
    pub over: CancellationToken,
}

/// A model call of an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelStep {
    /// The agent's name.
    pub agent: String,
    /// The agent's position in execution order.
    pub number: i64,
    /// The agent's iteration.
    pub iteration: u32,
}

/// A piece of a model's output.
#[derive(Debug, Clone)]
pub struct OutputDelta {
    /// The number of the run's last event before the model call: the piece belongs after that event, and before the
    /// next.
    pub after: i64,
    /// The client's event data, as JSON.
    pub data: Arc<str>,
}

/// A listener of a run.
pub struct DeltaListener {
    heard: Receiver<OutputDelta>,
    _channel: Arc<Channel>,
}

/// A waiter for writes to a run by this process. For writes of other processes, its owner must poll.
pub struct RunWatch {
    written: watch::Receiver<()>,
    _channel: Arc<Channel>,
}

/// The publisher of one call's output.
pub struct DeltaPublisher {
    channel: Arc<Channel>,
    after: i64,
    step: ModelStep,
    /// The open text blocks.
    texts: Vec<u32>,
    /// The published characters.
    told: usize,
}

/// The channel of one run, alive while it has listeners or a possible publisher.
#[derive(Debug)]
struct Channel {
    run_id: String,
    pieces: Sender<OutputDelta>,
    written: watch::Sender<()>,
    all: Deltas,
}

impl Deltas {
    /// Begins to listen to a run.
    pub fn listen(&self, run_id: &str) -> DeltaListener {
        let channel = self.channel(run_id);
        DeltaListener {
            heard: channel.pieces.subscribe(),
            _channel: channel,
        }
    }

    /// Begins to wait for writes to a run.
    pub fn watch(&self, run_id: &str) -> RunWatch {
        let channel = self.channel(run_id);
        RunWatch {
            written: channel.written.subscribe(),
            _channel: channel,
        }
    }

    /// Notifies waiters of a write to a run.
    pub fn tell_written(&self, run_id: &str) {
        let channel = self.lock().get(run_id).and_then(Weak::upgrade);
        if let Some(channel) = channel {
            channel.written.send_replace(());
        }
    }

    fn channel(&self, run_id: &str) -> Arc<Channel> {
        let mut channels = self.lock();
        let known = channels.get(run_id).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let channel = Arc::new(Channel {
                run_id: run_id.to_owned(),
                pieces: Sender::new(WAITING),
                written: watch::Sender::new(()),
                all: self.clone(),
            });
            channels.insert(run_id.to_owned(), Arc::downgrade(&channel));
            channel
        })
    }

    /// Returns the publisher of a call, after the run's event with this number; `None` without listeners.
    pub fn publisher(&self, run_id: &str, after: i64, step: ModelStep) -> Option<DeltaPublisher> {
        let channel = self.lock().get(run_id).and_then(Weak::upgrade)?;
        (channel.pieces.receiver_count() > 0).then(|| DeltaPublisher {
            channel,
            after,
            step,
            texts: Vec::new(),
            told: 0,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<Channel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let mut channels = self.all.lock();
        // A new listener may have replaced the channel.
        let is_gone = |channel: &Weak<Self>| channel.strong_count() == 0;
        if channels.get(&self.run_id).is_some_and(is_gone) {
            channels.remove(&self.run_id);
        }
    }
}

impl RunWatch {
    /// Marks all writes so far as seen.
    pub fn mark_seen(&mut self) {
        self.written.mark_unchanged();
    }

    /// Waits for the next write.
    pub async fn written(&mut self) {
        if self.written.changed().await.is_err() {
            // The sender lives in this object, so the channel stays open.
            std::future::pending().await
        }
    }
}

impl DeltaListener {
    /// Waits for the next piece.
    pub async fn next(&mut self) -> OutputDelta {
        loop {
            match self.heard.recv().await {
                Ok(delta) => return delta,
                Err(RecvError::Lagged(_)) => {}
                // The sender lives in this object, so the channel stays open.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Returns the next piece, if there is one.
    pub fn try_next(&mut self) -> Option<OutputDelta> {
        use tokio::sync::broadcast::error::TryRecvError;
        loop {
            match self.heard.try_recv() {
                Ok(delta) => return Some(delta),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }
}

impl DeltaPublisher {
    /// Publishes the text of a response's next events.
    pub fn events(&mut self, events: &[Event]) {
        let mut text = String::new();
        for event in events {
            match event {
                Event::BlockStart(start) if matches!(start.block, Block::Text) => {
                    self.texts.push(start.index);
                }
                Event::BlockEnd(index) => self.texts.retain(|open| open != index),
                Event::Fragment(fragment) if self.texts.contains(&fragment.index) => {
                    text.push_str(&fragment.text);
                }
                _ => {}
            }
        }
        if text.is_empty() {
            return;
        }
        let offset = self.told;
        self.told += text.chars().count();
        let mut data = json!(self.step);
        data["execution_id"] = json!(self.channel.run_id);
        data["offset"] = json!(offset);
        data["text"] = json!(text);
        // The last listener may have disconnected.
        let _ = self.channel.pieces.send(OutputDelta {
            after: self.after,
            data: data.to_string().into(),
        });
    }

    /// Resets the publisher after an attempt without output.
    pub fn restart(&mut self) {
        self.texts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> ModelStep {
        ModelStep {
            agent: "a".to_owned(),
            number: 0,
            iteration: 1,
        }
    }

    #[tokio::test]
    async fn what_is_written_of_a_run_wakes_its_own_watchers_alone() {
        use futures_util::FutureExt;

        let deltas = Deltas::default();
        let (mut own, mut others) = (deltas.watch("run"), deltas.watch("other"));
        deltas.tell_written("run");
        assert!(own.written().now_or_never().is_some());
        assert!(own.written().now_or_never().is_none(), "it was told once");
        assert!(others.written().now_or_never().is_none());
        // A waiter alone wants no text.
        assert!(deltas.publisher("run", 1, step()).is_none());
        drop((own, others));
        assert!(deltas.lock().is_empty());
    }

    #[test]
    fn who_has_left_is_told_nothing_and_leaves_nothing_behind() {
        let deltas = Deltas::default();
        assert!(deltas.publisher("run", 1, step()).is_none());
        let first = deltas.listen("run");
        let second = deltas.listen("run");
        assert!(deltas.publisher("other", 1, step()).is_none());
        let publisher = deltas.publisher("run", 1, step()).expect("two listen");
        drop((first, second));
        assert!(
            deltas.publisher("run", 1, step()).is_none(),
            "nobody listens"
        );
        // A listener that reconnects receives the rest of the call.
        let mut third = deltas.listen("run");
        drop(publisher);
        assert!(third.try_next().is_none());
        drop(third);
        assert!(deltas.lock().is_empty());
    }
}
