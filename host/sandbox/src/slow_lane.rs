//! The slow lanes: guests that compute for long run one after another, however many they are.
//!
//! Each component in its slot has a [`Lane`] of its own, in which its guests queue. The guests at the head of their lanes take turns:
//! a component whose guests all compute for ever keeps no other component's guest waiting for more than a moment.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::guest_clock::{GuestClock, TICK};

/// Ticks that pass for each one that a guest runs past its time at full speed: it gets a fifth of a core at most.
const TICKS_APART: u32 = 5;

/// Where the guests of one component wait for their turns. Clones are the same lane.
#[derive(Clone)]
pub(crate) struct Lane {
    /// The next moment as far as this lane's own guests go. They queue for it.
    free_at: Arc<Mutex<Instant>>,
    turns: Arc<SlowLane>,
}

impl Lane {
    /// A lane beside all others with the same turns.
    pub(crate) fn new(turns: &Arc<SlowLane>) -> Self {
        Self {
            free_at: Arc::new(Mutex::new(Instant::now())),
            turns: turns.clone(),
        }
    }

    /// Waits until it is the turn of the guest with this clock. What other lanes' guests keep it waiting is told to the clock; the
    /// guest's own pace and its own lane's guests are the component's own doing.
    pub(crate) async fn turn(&self, clock: &GuestClock) {
        let soonest = Instant::now() + TICK * (TICKS_APART - 1);
        sleep_until(soonest).await;
        let mut free_at = self.free_at.lock().await;
        let own = soonest.max(*free_at);
        sleep_until(own).await;
        let _waiting = clock.wait();
        let moment = self.turns.turn(own).await;
        *free_at = moment + self.turns.apart;
        clock.take_turn();
    }
}

/// Hands out moments to guests that are past their time at full speed.
///
/// The moments are as far apart as it takes for a fifth of the machine. If each guest slept for itself, many would leave
/// nothing to others; and those that began together would wake together, and run one after another on every thread.
pub(crate) struct SlowLane {
    /// The next moment. Lanes queue for it: who is dropped in the queue, or before the moment has come, uses none up.
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

    /// Waits for a moment, this one at the soonest. Returns it.
    async fn turn(&self, soonest: Instant) -> Instant {
        let mut free_at = self.free_at.lock().await;
        let moment = soonest.max(*free_at);
        sleep_until(moment).await;
        *free_at = moment + self.apart;
        moment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With moments this far apart, those of the dropped would take many times what the test waits.
    const APART: Duration = Duration::from_secs(60);

    fn clock() -> GuestClock {
        GuestClock::new(Duration::ZERO)
    }

    #[tokio::test]
    async fn a_turn_that_is_given_up_is_the_next_ones() {
        let turns = Arc::new(SlowLane::with_moments_apart(APART));
        let (lane, clock) = (Lane::new(&turns), clock());
        let mut given_up: Vec<_> = (0..20).map(|_| Box::pin(lane.turn(&clock))).collect();
        // The first has its moment; the others have their places behind it.
        given_up[0].as_mut().await;
        for turn in &mut given_up[1..] {
            let polled = tokio::time::timeout(TICK * TICKS_APART, turn.as_mut()).await;
            assert!(polled.is_err(), "its moment is far off");
        }
        drop(given_up);
        let mut free_at = turns.free_at.lock().await;
        let ahead = free_at.saturating_duration_since(Instant::now());
        assert!(ahead <= APART, "one moment was used, and {ahead:?} is");
        *free_at = Instant::now();
        drop(free_at);
        *lane.free_at.lock().await = Instant::now();
        lane.turn(&clock).await;
    }

    /// However many guests of a component are in its lane, another component's guest waits for one of them.
    #[tokio::test]
    async fn lanes_take_turns_however_long_each_is() {
        let apart = TICK * 10;
        let turns = Arc::new(SlowLane::with_moments_apart(apart));
        let [long, short] = [Lane::new(&turns), Lane::new(&turns)];
        let busy: Vec<_> = (0..50)
            .map(|_| {
                let long = long.clone();
                tokio::spawn(async move { long.turn(&clock()).await })
            })
            .collect();
        let of_short = clock();
        for _ in 0..3 {
            let began = Instant::now();
            short.turn(&of_short).await;
            let took = began.elapsed();
            assert!(took < TICK * 4 + apart * 5, "{took:?}");
        }
        // The wait for the other lane is not its own.
        assert!(of_short.waited() >= apart / 2, "{:?}", of_short.waited());
        busy.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn the_guests_of_one_lane_keep_one_another_waiting_at_their_own_cost() {
        let turns = Arc::new(SlowLane::with_moments_apart(TICK * 10));
        let lane = Lane::new(&turns);
        let clocks: Vec<_> = (0..4).map(|_| clock()).collect();
        let taken = clocks.iter().map(|clock| lane.turn(clock));
        let mut taken: Vec<_> = taken.map(Box::pin).collect();
        for turn in &mut taken {
            turn.as_mut().await;
        }
        for clock in &clocks {
            assert!(clock.waited() < TICK, "{:?}", clock.waited());
        }
    }
}
