//! How much is served at once: a number of turns, a short queue, and 503 beyond it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;

/// Bounds on how much is served at once: a part of `[limits]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdmissionLimits {
    /// Requests that are worked on at once; also the number of plugin instances. Default 512.
    pub concurrent_requests: NonZeroU32,
    /// Requests that wait for their turn beyond those; more get 503. Default 512.
    pub queued_requests: u32,
    /// Milliseconds that a request waits for its turn before it gets 503. Default 2,000.
    pub queue_timeout_ms: u64,
    /// MiB of all requests' bodies together; more wait, then get 503. Default 512.
    pub all_bodies_mib: NonZeroU32,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        let default = NonZeroU32::new(512).expect("not zero");
        Self {
            concurrent_requests: default,
            queued_requests: 512,
            queue_timeout_ms: 2_000,
            all_bodies_mib: default,
        }
    }
}

impl AdmissionLimits {
    /// What is wrong with the settings, beyond what types can say; each sentence names the setting.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.all_bodies_mib.get() > 1 << 20 {
            problems.push("`limits.all_bodies_mib` is more than 1 TiB".to_owned());
        }
        if self.concurrent_requests.get() > 8_192 {
            problems.push(format!(
                "`limits.concurrent_requests` is {}; more than 8192 plugin instances do not fit the address space",
                self.concurrent_requests
            ));
        }
        problems
    }
}

/// The turns that requests take.
pub struct Admission {
    turns: Arc<Semaphore>,
    queued: AtomicU32,
    queue_length: u32,
    queue_timeout: Duration,
    /// In KiB.
    body_room: Arc<Semaphore>,
    body_room_kib: u32,
}

/// The right to be served; a plugin instance is there for each. Dropped when the work is done.
pub struct Turn(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Admission {
    /// As many turns and places in the queue as the limits say.
    pub fn new(limits: &AdmissionLimits) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(limits.concurrent_requests.get() as usize)),
            queued: AtomicU32::new(0),
            queue_length: limits.queued_requests,
            queue_timeout: Duration::from_millis(limits.queue_timeout_ms),
            body_room: Arc::new(Semaphore::new(limits.all_bodies_mib.get() as usize * 1024)),
            body_room_kib: limits.all_bodies_mib.get() * 1024,
        }
    }

    /// Waits for room for a body of so many bytes; refuses when the wait is too long.
    pub async fn room_for_body(&self, bytes: u64) -> Result<OwnedSemaphorePermit, ApiError> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let kib = kib.min(self.body_room_kib);
        if let Ok(room) = self.body_room.clone().try_acquire_many_owned(kib) {
            return Ok(room);
        }
        let room = self.body_room.clone().acquire_many_owned(kib);
        match tokio::time::timeout(self.queue_timeout, room).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) | Err(_) => Err(overloaded()),
        }
    }

    /// Waits for a turn; refuses when the queue is full or the wait too long.
    pub async fn enter(&self) -> Result<Turn, ApiError> {
        if let Ok(turn) = self.turns.clone().try_acquire_owned() {
            return Ok(Turn(turn));
        }
        let place = Place::take(&self.queued);
        if place.number >= self.queue_length {
            return Err(overloaded());
        }
        match tokio::time::timeout(self.queue_timeout, self.turns.clone().acquire_owned()).await {
            Ok(Ok(turn)) => Ok(Turn(turn)),
            Ok(Err(_)) | Err(_) => Err(overloaded()),
        }
    }
}

/// A place in the queue, given up on drop: also when the client goes away while it waits.
struct Place<'a> {
    queued: &'a AtomicU32,
    number: u32,
}

impl<'a> Place<'a> {
    fn take(queued: &'a AtomicU32) -> Self {
        Self {
            number: queued.fetch_add(1, Ordering::Relaxed),
            queued,
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

fn overloaded() -> ApiError {
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "OVERLOADED",
        "Too many requests are being served; try again shortly.",
    )
    .with_retry_after(Duration::from_secs(1))
}
