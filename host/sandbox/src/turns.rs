//! When guests run that compute for long: one after another, however many they are.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::TICK;

/// How many ticks pass for each one that a guest runs past its first: it gets a fifth of a core at most.
const TICKS_PER_TURN: u32 = 5;

/// When those run next that are past their ticks at full speed.
///
/// Turns are as far apart as it takes for a fifth of the machine. If each guest slept for itself, many would leave
/// nothing to others; and those that began together would wake together, and run one after another on every thread.
pub(crate) struct Turns {
    free_at: Mutex<Instant>,
    apart: Duration,
}

impl Turns {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            free_at: Mutex::new(Instant::now()),
            apart: TICK * TICKS_PER_TURN / u32::try_from(cores).unwrap_or(u32::MAX),
        }
    }

    /// Takes the next turn. One that is given up by a guest that ends before it is lost, at one for each guest.
    pub(crate) fn next(&self) -> Instant {
        let soonest = Instant::now() + TICK * (TICKS_PER_TURN - 1);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = soonest.max(*free_at);
        *free_at = turn + self.apart;
        turn
    }
}
