//! The end of all connections: each is told of it, and waited for.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The connections of all listeners.
#[derive(Clone, Default)]
pub(super) struct Closing {
    is_due: Arc<AtomicBool>,
    told: CancellationToken,
    connections: TaskTracker,
}

impl Closing {
    /// Has a task of its own serve a connection.
    pub(super) fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        self.connections.spawn(connection);
    }

    /// Completes when connections are to end after the requests that are under way on them. To be awaited by one task: it is
    /// looked at whenever that is woken, which must not cost two locks each time.
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

    /// Has them end, and waits until they have.
    pub(super) async fn finish(&self) {
        self.is_due.store(true, Ordering::Release);
        self.told.cancel();
        self.connections.close();
        self.connections.wait().await;
    }
}
