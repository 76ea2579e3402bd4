//! The slow lane: guests that compute for long run one after another, however many they are.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::TICK;

/// Ticks that pass for each one that a guest runs past its first: it gets a fifth of a core at most.
const TICKS_APART: u32 = 5;

/// Hands out moments to guests that are past their ticks at full speed.
///
/// The moments are as far apart as it takes for a fifth of the machine. If each guest slept for itself, many would leave
/// nothing to others; and those that began together would wake together, and run one after another on every thread.
pub(crate) struct SlowLane {
    free_at: Mutex<Instant>,
    apart: Duration,
}

impl SlowLane {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            free_at: Mutex::new(Instant::now()),
            apart: TICK * TICKS_APART / u32::try_from(cores).unwrap_or(u32::MAX),
        }
    }

    /// Takes the next moment. A guest that ends before its moment leaves it unused; each guest has one at most.
    pub(crate) fn next(&self) -> Instant {
        let soonest = Instant::now() + TICK * (TICKS_APART - 1);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let moment = soonest.max(*free_at);
        *free_at = moment + self.apart;
        moment
    }
}
