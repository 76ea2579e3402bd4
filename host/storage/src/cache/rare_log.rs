//! A failure that may occur with each request, and is logged at most once a minute.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Least time between two lines.
const EVERY: Duration = Duration::from_secs(60);

/// Decides which failures are logged, and counts the others.
#[derive(Debug, Default)]
pub(super) struct RareLog(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    logged_at: Option<Instant>,
    since: u64,
}

impl RareLog {
    /// Counts a failure. Returns the number of failures since the last line, this one included, if it is to be logged.
    pub(super) fn count(&self) -> Option<u64> {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.since += 1;
        if counted.logged_at.is_some_and(|at| at.elapsed() < EVERY) {
            return None;
        }
        counted.logged_at = Some(Instant::now());
        Some(std::mem::take(&mut counted.since))
    }
}
