//! Who waits for events in this process: what applies them, for more to come, and those who have brought them, until they
//! are applied.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, broadcast};
use tokio::time::timeout;

/// Events whose end is told before whoever waits must have listened; who is slower waits in vain.
const TOLD: usize = 1_024;

/// Tells of events that come, and of those that are applied.
pub struct Arrivals {
    come: Notify,
    applied: broadcast::Sender<Arc<str>>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            come: Notify::new(),
            applied: broadcast::Sender::new(TOLD),
        }
    }
}

impl Arrivals {
    /// To be told of those that are applied from now on.
    pub fn listen(&self) -> broadcast::Receiver<Arc<str>> {
        self.applied.subscribe()
    }

    /// An event is due.
    pub fn tell_come(&self) {
        self.come.notify_one();
    }

    /// Waits until one is, or for so long.
    pub async fn wait_for_more(&self, at_most: Duration) {
        let _ = timeout(at_most, self.come.notified()).await;
    }

    /// An event was tried.
    pub fn tell_tried(&self, id: &str) {
        // Nobody may be waiting.
        let _ = self.applied.send(id.into());
    }
}

/// Waits until an event of this id was tried, or for so long.
pub async fn wait_for(mut tried: broadcast::Receiver<Arc<str>>, id: &str, at_most: Duration) {
    let it = async {
        loop {
            match tried.recv().await {
                Ok(other) if &*other != id => {}
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                _ => return,
            }
        }
    };
    let _ = timeout(at_most, it).await;
}
