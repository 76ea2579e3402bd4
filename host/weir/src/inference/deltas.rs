//! What agents' models say while they say it, for who listens at this node.
//!
//! A model's call is answered whole, and kept, so that its executor can ask for it again. On the way past, its text is told
//! here, piece by piece. Nothing of that is kept: it is for showing, and who comes late, reads slowly, or listens at another
//! node than the one that serves the call, has less of it. The output of an agent's end is what counts.
//!
//! The same channels wake those who wait for something to be written of a run ([`Deltas::watch`]): its own, and nobody else.
//!
//! **Invariant:** what nobody listens to costs nothing: the model is then asked for a whole answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::sync::watch;
use weir_sandbox::adapter::bindings::chat::{Block, Event};

/// Pieces that wait for a listener to read them. Of more, the first are lost to it.
const WAITING: usize = 256;

/// What is said in the runs that somebody listens to. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Deltas(Arc<Mutex<HashMap<String, Weak<Channel>>>>);

/// Which call of which agent's model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelStep {
    /// The agent's name.
    pub agent: String,
    /// Its place in the order in which they run.
    pub number: i64,
    /// Its iteration.
    pub iteration: u32,
}

/// A piece of what a model says.
#[derive(Debug, Clone)]
pub struct Delta {
    /// The run's last event when the model was asked: its place is behind that one, and before the next.
    pub after: i64,
    /// What clients are told, as JSON.
    pub data: Arc<str>,
}

/// Hears what is said in a run.
pub struct Listener {
    heard: Receiver<Delta>,
    _channel: Arc<Channel>,
}

/// Wakes when something was written of a run, by this process. What another process writes, its owner looks for itself.
pub struct Watch {
    written: watch::Receiver<()>,
    _channel: Arc<Channel>,
}

/// Tells what a model says in one call.
pub struct DeltaPublisher {
    channel: Arc<Channel>,
    after: i64,
    step: ModelStep,
    /// The blocks of text that have begun and not ended.
    texts: Vec<u32>,
    /// Characters that were told.
    told: usize,
}

/// What is said in one run, for as long as somebody listens or may speak.
#[derive(Debug)]
struct Channel {
    run_id: String,
    pieces: Sender<Delta>,
    written: watch::Sender<()>,
    all: Deltas,
}

impl Deltas {
    /// Listens to a run from now on.
    pub fn listen(&self, run_id: &str) -> Listener {
        let channel = self.channel(run_id);
        Listener {
            heard: channel.pieces.subscribe(),
            _channel: channel,
        }
    }

    /// Waits for what is written of a run from now on.
    pub fn watch(&self, run_id: &str) -> Watch {
        let channel = self.channel(run_id);
        Watch {
            written: channel.written.subscribe(),
            _channel: channel,
        }
    }

    /// Something was written of a run.
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

    /// Who tells of a call in a run whose last event has this number; `None` where nobody listens.
    pub fn teller(&self, run_id: &str, after: i64, step: ModelStep) -> Option<DeltaPublisher> {
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
        // Somebody may have begun to listen anew.
        let is_gone = |channel: &Weak<Self>| channel.strong_count() == 0;
        if channels.get(&self.run_id).is_some_and(is_gone) {
            channels.remove(&self.run_id);
        }
    }
}

impl Watch {
    /// Takes all that was written so far as seen.
    pub fn mark_seen(&mut self) {
        self.written.mark_unchanged();
    }

    /// Waits until something is written.
    pub async fn written(&mut self) {
        if self.written.changed().await.is_err() {
            // Its own share of the channel keeps that open.
            std::future::pending().await
        }
    }
}

impl Listener {
    /// The next piece, when it comes.
    pub async fn next(&mut self) -> Delta {
        loop {
            match self.heard.recv().await {
                Ok(delta) => return delta,
                Err(RecvError::Lagged(_)) => {}
                // Its own share of the channel keeps that open.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// The next piece, if it is there.
    pub fn try_next(&mut self) -> Option<Delta> {
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
    /// Tells the text of an answer's next events.
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
        // Whoever listened may have left.
        let _ = self.channel.pieces.send(Delta {
            after: self.after,
            data: data.to_string().into(),
        });
    }

    /// Forgets an attempt that has said nothing, for the next one.
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
        // A watcher alone has no model asked for a stream.
        assert!(deltas.teller("run", 1, step()).is_none());
        drop((own, others));
        assert!(deltas.lock().is_empty());
    }

    #[test]
    fn who_has_left_is_told_nothing_and_leaves_nothing_behind() {
        let deltas = Deltas::default();
        assert!(deltas.teller("run", 1, step()).is_none());
        let first = deltas.listen("run");
        let second = deltas.listen("run");
        assert!(deltas.teller("other", 1, step()).is_none());
        let teller = deltas.teller("run", 1, step()).expect("two listen");
        drop((first, second));
        assert!(deltas.teller("run", 1, step()).is_none(), "nobody listens");
        // Who comes back hears the rest of the call.
        let mut third = deltas.listen("run");
        drop(teller);
        assert!(third.try_next().is_none());
        drop(third);
        assert!(deltas.lock().is_empty());
    }
}
