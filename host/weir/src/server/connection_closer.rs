//! The shutdown of all connections: it notifies each connection, and waits for it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The connections of all listeners.
#[derive(Clone, Default)]
pub(super) struct ConnectionCloser {
    is_due: Arc<AtomicBool>,
    told: CancellationToken,
    connections: TaskTracker,
}

impl ConnectionCloser {
    /// Spawns a task that serves a connection.
    pub(super) fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        self.connections.spawn(connection);
    }

    /// Completes when connections must end after their current requests. Only one task may await it: each wake-up polls
    /// it, and must not take two locks.
    pub(super) async fn due(&self) {
        let mut told = pin!(self.told.cancelled());
        let mut will_wake = false;
        poll_fn(|context| {
            if will_wake && !self.is_due.load(Ordering::Acquire) {
                return Poll::Pending;
            }
            will_wake = true;
            told.as_mut().poll(context)
        })
        .await;
    }

    /// Ends all connections, and waits for their end.
    pub(super) async fn finish(&self) {
        self.is_due.store(true, Ordering::Release);
        self.told.cancel();
        self.connections.close();
        self.connections.wait().await;
    }
}
