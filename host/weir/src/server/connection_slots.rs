//! The connection slots of a listener. The last few are reserved for essential requests: liveness, readiness, and the
//! payment processor's webhooks.
//!
//! A connection in a reserved slot gets an immediate error for all other requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_errors::{ApiError, ErrorCode};

use super::connections::{Eviction, ListenerConnections};

/// Reserved slots: enough for a few concurrent probes, and for the rejections of a moment.
pub(super) const LAST_PLACES: usize = 64;

/// Reserved slots that connections with a webhook may take: strangers can send webhooks slowly, and must leave slots to
/// the probes.
const LAST_FOR_EVENTS: usize = 32;

/// Interval between searches for an idle connection to close while another one waits.
const EVICTION_PERIOD: Duration = Duration::from_millis(100);

const HEALTH: [&str; 2] = ["/health", "/health/ready"];
const EVENTS: &str = "/billing/webhook";

/// The connection slots of one listener.
pub(super) struct ConnectionSlots {
    all: Arc<Semaphore>,
    last: Arc<Semaphore>,
    events: Arc<Semaphore>,
}

pub(super) struct ConnectionSlot {
    places: Arc<ConnectionSlots>,
    permit: Mutex<OwnedSemaphorePermit>,
    is_last: AtomicBool,
}

/// The additional slot of a request beside the one of its connection.
pub(super) type ExtraSlot = Option<OwnedSemaphorePermit>;

impl ConnectionSlots {
    pub(super) fn new(connections: u32) -> Self {
        Self {
            all: Arc::new(Semaphore::new(connections as usize)),
            last: Arc::new(Semaphore::new(LAST_PLACES)),
            events: Arc::new(Semaphore::new(LAST_FOR_EVENTS)),
        }
    }

    /// Waits for a slot. If none is free, an idle connection makes way. If no connection is idle, or all are still in use
    /// after a moment, the new one gets a reserved slot; if these are taken, too, clients wait in the kernel's queue.
    pub(super) async fn take(
        self: &Arc<Self>,
        connections: &ListenerConnections,
    ) -> ConnectionSlot {
        let mut has_waited = false;
        loop {
            if let Ok(permit) = self.all.clone().try_acquire_owned() {
                return self.place(permit, false);
            }
            let makes_way = match connections.evict_one() {
                Eviction::MakesWay => true,
                Eviction::AllInUse => !has_waited,
                Eviction::AllBusy => false,
            };
            if !makes_way && let Ok(permit) = self.last.clone().try_acquire_owned() {
                return self.place(permit, true);
            }
            let permit = self.all.clone().acquire_owned();
            if let Ok(Ok(permit)) = tokio::time::timeout(EVICTION_PERIOD, permit).await {
                return self.place(permit, false);
            }
            has_waited = true;
        }
    }

    /// Admits an essential request on a reserved slot.
    fn admit_last(&self, path: &str) -> Result<ExtraSlot, ApiError> {
        let events = (path == EVENTS).then(|| self.events.clone().try_acquire_owned().ok());
        events.flatten().map(Some).ok_or_else(overloaded)
    }

    fn place(self: &Arc<Self>, permit: OwnedSemaphorePermit, is_last: bool) -> ConnectionSlot {
        ConnectionSlot {
            places: self.clone(),
            permit: Mutex::new(permit),
            is_last: AtomicBool::new(is_last),
        }
    }
}

impl ConnectionSlot {
    /// Returns whether the connection has a slot for a request to this path: a reserved slot admits only essential
    /// paths.
    pub(super) fn admit(&self, path: &str) -> Result<ExtraSlot, ApiError> {
        if !self.is_last.load(Ordering::Relaxed) || HEALTH.contains(&path) {
            return Ok(None);
        }
        // A regular slot may be free by now.
        if let Ok(permit) = self.places.all.clone().try_acquire_owned() {
            *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
            self.is_last.store(false, Ordering::Relaxed);
            return Ok(None);
        }
        self.places.admit_last(path)
    }

    /// Admits a concurrent request on the same connection; it takes a slot like a connection of its own.
    pub(super) fn admit_beside(&self, path: &str) -> Result<ExtraSlot, ApiError> {
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
        "The gateway is at its maximum number of concurrent requests; try again shortly.",
    )
    .with_retry_after(Duration::from_secs(1))
}
