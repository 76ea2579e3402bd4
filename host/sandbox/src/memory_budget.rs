//! The memory budget of all guests of a node.
//!
//! A guest's own limit times the number of guests exceeds a machine's memory many times over. All growth of a guest's
//! memory, from its first byte on, is therefore taken from one budget, and returned when the guest is dropped.
//!
//! **Invariant:** a guest that finds too little memory waits no longer than [`PATIENCE`], and does not block other
//! guests meanwhile: a small guest may overtake a large one that waits.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Maximum time that a guest waits for memory.
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

    /// Takes bytes. Returns whether they were available in time.
    pub(crate) async fn take(&self, bytes: u64) -> bool {
        if self.try_take(bytes) {
            return true;
        }
        let waiting = async {
            loop {
                // Registered before the check, so that no notification is lost between the check and the wait.
                let given_back = self.given_back.notified();
                if self.try_take(bytes) {
                    return;
                }
                given_back.await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            *self.left.lock().unwrap_or_else(PoisonError::into_inner) += bytes;
            self.given_back.notify_waiters();
        }
    }

    /// Takes bytes if available. Returns whether they were.
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
