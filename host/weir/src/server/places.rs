//! The places that a listener's connections take, and the last few, which are for what must be heard however full it is:
//! whether the gateway lives and is ready, and what the payment processor tells.
//!
//! Whoever gets one of those is told at once that there is no room for anything else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_errors::{ApiError, ErrorCode};

use super::connections::Connections;

/// The last places: a few probes at once, and as many refusals as are heard in a moment.
pub(super) const LAST_PLACES: usize = 64;

/// Of these, those whose client may be sending an event: strangers can do so slowly, and must leave some to the probes.
const LAST_FOR_EVENTS: usize = 32;

/// How often a connection is looked for that can be ended for one that waits.
const EVICTION_PERIOD: Duration = Duration::from_millis(100);

const HEALTH: [&str; 2] = ["/health", "/health/ready"];
const EVENTS: &str = "/billing/webhook";

/// The places of one listener.
pub(super) struct Places {
    all: Arc<Semaphore>,
    last: Arc<Semaphore>,
    events: Arc<Semaphore>,
}

/// A connection's place.
pub(super) struct Place {
    places: Arc<Places>,
    permit: Mutex<OwnedSemaphorePermit>,
    is_last: AtomicBool,
}

/// What a request holds beside the place of its connection.
pub(super) type Extra = Option<OwnedSemaphorePermit>;

impl Places {
    pub(super) fn new(connections: u32) -> Self {
        Self {
            all: Arc::new(Semaphore::new(connections as usize)),
            last: Arc::new(Semaphore::new(LAST_PLACES)),
            events: Arc::new(Semaphore::new(LAST_FOR_EVENTS)),
        }
    }

    /// Waits for a place. While there is none, a connection that is idle makes way; if none is, it is one of the last, and
    /// when these are taken, too, clients wait in the kernel's queue.
    pub(super) async fn take(self: &Arc<Self>, connections: &Connections) -> Place {
        loop {
            if let Ok(permit) = self.all.clone().try_acquire_owned() {
                return self.place(permit, false);
            }
            if !connections.evict_one()
                && let Ok(permit) = self.last.clone().try_acquire_owned()
            {
                return self.place(permit, true);
            }
            let permit = self.all.clone().acquire_owned();
            if let Ok(Ok(permit)) = tokio::time::timeout(EVICTION_PERIOD, permit).await {
                return self.place(permit, false);
            }
        }
    }

    /// Where there is no room for anything else.
    fn admit_last(&self, path: &str) -> Result<Extra, ApiError> {
        let events = (path == EVENTS).then(|| self.events.clone().try_acquire_owned().ok());
        events.flatten().map(Some).ok_or_else(overloaded)
    }

    fn place(self: &Arc<Self>, permit: OwnedSemaphorePermit, is_last: bool) -> Place {
        Place {
            places: self.clone(),
            permit: Mutex::new(permit),
            is_last: AtomicBool::new(is_last),
        }
    }
}

impl Place {
    /// Whether it has room for a request to this path: one of the last places has it for little.
    pub(super) fn admit(&self, path: &str) -> Result<Extra, ApiError> {
        if !self.is_last.load(Ordering::Relaxed) || HEALTH.contains(&path) {
            return Ok(None);
        }
        // By now there may be another one.
        if let Ok(permit) = self.places.all.clone().try_acquire_owned() {
            *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
            self.is_last.store(false, Ordering::Relaxed);
            return Ok(None);
        }
        self.places.admit_last(path)
    }

    /// The same for a request beside others on one connection, which takes as much as one on a connection of its own.
    pub(super) fn admit_beside(&self, path: &str) -> Result<Extra, ApiError> {
        if HEALTH.contains(&path) {
            return Ok(None);
        }
        if let Ok(permit) = self.places.all.clone().try_acquire_owned() {
            return Ok(Some(permit));
        }
        self.places.admit_last(path)
    }
}

fn overloaded() -> ApiError {
    ApiError::new(
        ErrorCode::Overloaded,
        "As many requests are under way as there is room for; try again shortly.",
    )
    .with_retry_after(Duration::from_secs(1))
}
