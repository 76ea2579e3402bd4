//! What all guests of a node may have of memory together.
//!
//! Each guest's own limit times as many as may be at work would be many times a machine's memory. So whatever a guest's
//! memory grows by, from its first byte on, is taken from one budget, and goes back when the guest is dropped.
//!
//! **Invariant:** who finds too little waits no longer than [`PATIENCE`], and meanwhile keeps from nobody else what is
//! left: a small guest goes past a large one that waits.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// How long a guest waits for others to give back what it wants.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes that are left for guests.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    left: Mutex<u64>,
    given_back: Notify,
}

impl MemoryBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            left: Mutex::new(bytes),
            given_back: Notify::new(),
        }
    }

    /// Takes so many bytes. Returns whether they were there in time.
    pub(crate) async fn take(&self, bytes: u64) -> bool {
        if self.try_take(bytes) {
            return true;
        }
        let waiting = async {
            loop {
                // Before the look, so that nothing is missed between it and the wait.
                let given_back = self.given_back.notified();
                if self.try_take(bytes) {
                    return;
                }
                given_back.await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.is_ok()
    }

    /// Gives so many bytes back.
    pub(crate) fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            *self.left.lock().unwrap_or_else(PoisonError::into_inner) += bytes;
            self.given_back.notify_waiters();
        }
    }

    /// Takes so many bytes if they are there. Returns whether they were.
    pub(crate) fn try_take(&self, bytes: u64) -> bool {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        match left.checked_sub(bytes) {
            Some(rest) => {
                *left = rest;
                true
            }
            None => false,
        }
    }
}
