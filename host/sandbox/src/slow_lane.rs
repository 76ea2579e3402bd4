//! The slow lanes: guests that compute for long run one after another, regardless of their number.
//!
//! Each component in its slot has a [`GuestQueue`] of its own, in which its guests queue. The guests at the head of their
//! lanes take turns: a component whose guests all compute for ever delays no other component's guest by more than a
//! moment.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::guest_clock::{GuestClock, TICK};

/// Ticks that pass for each tick of a guest past its time at full speed: such a guest gets at most a fifth of a core.
const TICKS_APART: u32 = 5;

/// The queue in which one component's guests wait for their turns. Clones are the same lane.
#[derive(Clone)]
pub(crate) struct GuestQueue {
    /// The earliest next turn by this lane's own guests, which queue for it.
    free_at: Arc<Mutex<Instant>>,
    turns: Arc<SlowLane>,
}

impl GuestQueue {
    /// A lane that shares its turns with all others.
    pub(crate) fn new(turns: &Arc<SlowLane>) -> Self {
        Self {
            free_at: Arc::new(Mutex::new(Instant::now())),
            turns: turns.clone(),
        }
    }

    /// Waits for the turn of the guest with this clock. The clock counts only waits for other lanes' guests; the
    /// guest's own pace and its own lane's guests are the component's responsibility.
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

/// The schedule of turns for guests that are past their time at full speed.
///
/// The turns are spaced to fill a fifth of the machine. If each guest slept on its own, many guests would leave
/// nothing to others, and guests that began together would wake together and run one after another on every thread.
pub(crate) struct SlowLane {
    /// The next turn. Lanes queue for it: a guest that is dropped in the queue, or before its turn, uses up none.
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

    /// Waits for a turn, at `soonest` or later. Returns its time.
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

    /// With turns this far apart, the turns of dropped guests would take many times the test's wait.
    const APART: Duration = Duration::from_secs(60);

    fn clock() -> GuestClock {
        GuestClock::new(Duration::ZERO)
    }

    #[tokio::test]
    async fn a_turn_that_is_given_up_is_the_next_ones() {
        let turns = Arc::new(SlowLane::with_moments_apart(APART));
        let (lane, clock) = (GuestQueue::new(&turns), clock());
        let mut given_up: Vec<_> = (0..20).map(|_| Box::pin(lane.turn(&clock))).collect();
        // The first guest has its turn; the rest queue behind it.
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

    /// A guest of another component waits for one guest of a crowded lane, regardless of the crowd's size.
    #[tokio::test]
    async fn lanes_take_turns_however_long_each_is() {
        let apart = TICK * 10;
        let turns = Arc::new(SlowLane::with_moments_apart(apart));
        let [long, short] = [GuestQueue::new(&turns), GuestQueue::new(&turns)];
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
        // The wait for the other lane does not count as its own.
        assert!(of_short.waited() >= apart / 2, "{:?}", of_short.waited());
        busy.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn the_guests_of_one_lane_keep_one_another_waiting_at_their_own_cost() {
        let turns = Arc::new(SlowLane::with_moments_apart(TICK * 10));
        let lane = GuestQueue::new(&turns);
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
