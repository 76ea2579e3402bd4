//! The slow lane: guests that compute for long run one after another, however many they are.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::limits::TICK;

/// Ticks that pass for each one that a guest runs past those at full speed: it gets a fifth of a core at most.
const TICKS_APART: u32 = 5;

/// Hands out moments to guests that are past their ticks at full speed.
///
/// The moments are as far apart as it takes for a fifth of the machine. If each guest slept for itself, many would leave
/// nothing to others; and those that began together would wake together, and run one after another on every thread.
pub(crate) struct SlowLane {
    /// The next moment. Guests queue for it: who is dropped in the queue, or before the moment has come, uses none up.
    free_at: Mutex<Instant>,
    apart: Duration,
}

impl SlowLane {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_moments_apart(TICK * TICKS_APART / u32::try_from(cores).unwrap_or(u32::MAX))
    }

    fn with_moments_apart(apart: Duration) -> Self {
        Self {
            free_at: Mutex::new(Instant::now()),
            apart,
        }
    }

    /// Waits for the caller's moment.
    pub(crate) async fn turn(&self) {
        let soonest = Instant::now() + TICK * (TICKS_APART - 1);
        sleep_until(soonest).await;
        let mut free_at = self.free_at.lock().await;
        let moment = soonest.max(*free_at);
        sleep_until(moment).await;
        *free_at = moment + self.apart;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With moments this far apart, those of the dropped would take many times what the test waits.
    const APART: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_turn_that_is_given_up_is_the_next_ones() {
        let lane = SlowLane::with_moments_apart(APART);
        let mut given_up: Vec<_> = (0..20).map(|_| Box::pin(lane.turn())).collect();
        // The first has its moment; the others have their places behind it.
        given_up[0].as_mut().await;
        for turn in &mut given_up[1..] {
            let polled = tokio::time::timeout(TICK * TICKS_APART, turn.as_mut()).await;
            assert!(polled.is_err(), "its moment is far off");
        }
        drop(given_up);
        let mut free_at = lane.free_at.lock().await;
        let ahead = free_at.saturating_duration_since(Instant::now());
        assert!(ahead <= APART, "one moment was used, and {ahead:?} is");
        *free_at = Instant::now();
        drop(free_at);
        lane.turn().await;
    }
}
