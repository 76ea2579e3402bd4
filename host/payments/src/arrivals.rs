//! Signals within this process: an event has arrived, or weir has tried to apply it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, broadcast};
use tokio::time::timeout;

/// Length of the queue of tried events. A slower waiter misses its event and waits until its time limit.
const TOLD: usize = 1_024;

/// Signals for arrived and tried events.
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
    /// Subscribes to events that weir tries from now on.
    pub fn listen(&self) -> broadcast::Receiver<Arc<str>> {
        self.applied.subscribe()
    }

    /// Signals that an event is due.
    pub fn tell_come(&self) {
        self.come.notify_one();
    }

    /// Waits until an event is due, or until the time limit.
    pub async fn wait_for_more(&self, at_most: Duration) {
        let _ = timeout(at_most, self.come.notified()).await;
    }

    /// Signals that weir has tried to apply an event.
    pub fn tell_tried(&self, id: &str) {
        // An error only means that no task waits.
        let _ = self.applied.send(id.into());
    }
}

/// Waits until weir has tried to apply the event of this id, or until the time limit.
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
