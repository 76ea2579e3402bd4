//! A guest's time: its processor time, and its time of waiting for others.
//!
//! A guest pays for the processor time of its thread, never for wall-clock time: on a busy machine, a thread can be
//! off the processor for longer than its guest's complete budget.
//!
//! A read of a thread's processor time is a system call of 0.2 to 1 µs, against 2 µs for a complete call into a
//! guest. A slice (one poll of a call) that ends within [`SHORT`] by the wall clock is therefore charged by the wall
//! clock, which is nearly free and wrong by [`SHORT`] at most. A longer slice is charged by the thread's clock, from
//! the thread's last reading on. The reading is at most [`READING_LASTS`] older than the slice: the processor time
//! of another guest in that span is the largest error.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The period of the epoch clock: the longest run of a guest before the host regains control.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Longest slice that is charged by the wall clock.
const SHORT: Duration = Duration::from_micros(100);

/// Validity of a thread's reading of its processor time, for new slices.
const READING_LASTS: Duration = Duration::from_micros(500);

/// Processor time per byte of input, several times the cost of a translation. A fixed budget would cut the longest
/// responses.
const PER_BYTE: Duration = Duration::from_nanos(40);

/// Minimum bytes that count for each call: an upstream chooses the size of its pieces, and each costs a call.
const LEAST_BYTES: u32 = 250;

/// Processor time of a call at full speed, beside that for its input. A translation takes 20 µs: a call that runs
/// longer than this has no good reason to.
const AT_FULL_SPEED: Duration = Duration::from_millis(10);

/// A guest's clock. Shared with the queues in which the guest waits.
#[derive(Clone)]
pub(crate) struct GuestClock(Arc<Mutex<Times>>);

struct Times {
    /// Processor time that the guest has for all its calls.
    budget: Duration,
    /// Processor time of all finished slices.
    used: Duration,
    /// Processor time that the guest may use before it waits for its next turn.
    until_turn: Duration,
    slice: Option<RunPeriod>,
    /// Time that the call has waited for others.
    waited: Duration,
    waiting_since: Option<Instant>,
}

/// The decision on a guest after a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TickDecision {
    /// Continue at once.
    GoOn,
    /// Continue at the guest's next turn.
    AwaitTurn,
    /// The guest has used up its processor time.
    Ended,
}

impl GuestClock {
    /// The clock of a guest with this budget of processor time.
    pub(crate) fn new(budget: Duration) -> Self {
        Self(Arc::new(Mutex::new(Times {
            budget,
            used: Duration::ZERO,
            until_turn: Duration::ZERO,
            slice: None,
            waited: Duration::ZERO,
            waiting_since: None,
        })))
    }

    /// Begins a call; its input's bytes extend the processor time. Returns whether any is left.
    pub(crate) fn begin_call(&self, handed_bytes: usize) -> bool {
        let bytes = u32::try_from(handed_bytes).unwrap_or(u32::MAX);
        let mut times = self.lock();
        let granted = PER_BYTE * bytes.max(LEAST_BYTES);
        times.budget += granted;
        times.until_turn = times.used + AT_FULL_SPEED + granted;
        times.waited = Duration::ZERO;
        times.used < times.budget
    }

    /// Charges one poll of a call.
    pub(crate) fn slice<T>(&self, poll: impl FnOnce() -> T) -> T {
        let slice = RunPeriod::begin();
        self.lock().slice = Some(slice);
        let polled = poll();
        let mut times = self.lock();
        times.slice = None;
        times.used += slice.used();
        polled
    }

    /// Decides after a tick within a slice.
    pub(crate) fn pace(&self) -> TickDecision {
        let times = self.lock();
        let running = times.slice.map_or(Duration::ZERO, |slice| slice.used());
        let used = times.used + running;
        if used >= times.budget {
            TickDecision::Ended
        } else if used < times.until_turn {
            TickDecision::GoOn
        } else {
            TickDecision::AwaitTurn
        }
    }

    /// Begins the guest's turn: one tick of processor time, regardless of its duration on a busy machine.
    pub(crate) fn take_turn(&self) {
        let mut times = self.lock();
        times.until_turn = times.used + TICK;
    }

    /// Counts time as waiting for others, until the returned value is dropped.
    pub(crate) fn wait(&self) -> WaitPeriod {
        self.lock().waiting_since = Some(Instant::now());
        WaitPeriod(self.clone())
    }

    /// Returns the time that the call has waited for others, until now.
    pub(crate) fn waited(&self) -> Duration {
        let times = self.lock();
        let waiting = times.waiting_since.map(|since| since.elapsed());
        times.waited + waiting.unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        // The data are sums: no panic leaves them half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A period in which a guest waits for others.
pub(crate) struct WaitPeriod(GuestClock);

impl Drop for WaitPeriod {
    fn drop(&mut self) {
        let mut times = self.0.lock();
        if let Some(since) = times.waiting_since.take() {
            times.waited += since.elapsed();
        }
    }
}

/// A period in which one thread runs a guest.
#[derive(Clone, Copy)]
struct RunPeriod {
    began: Instant,
    /// The thread's processor time at its last reading before the slice.
    reading: Duration,
}

thread_local! {
    /// The moment and value of this thread's last reading of its processor time.
    static READING: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

impl RunPeriod {
    fn begin() -> Self {
        let began = Instant::now();
        let last = READING.get();
        let last = last.filter(|(at, _)| began.duration_since(*at) < READING_LASTS);
        let reading = last.map_or_else(|| read(began), |(_, reading)| reading);
        Self { began, reading }
    }

    /// Returns the processor time since the beginning. Must run on the thread of the beginning.
    fn used(&self) -> Duration {
        let now = Instant::now();
        let by_the_wall = now.duration_since(self.began);
        if by_the_wall <= SHORT {
            return by_the_wall;
        }
        read(now).saturating_sub(self.reading).min(by_the_wall)
    }
}

fn read(now: Instant) -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Processor time is never negative.
    let reading = Duration::try_from(time).unwrap_or_default();
    READING.set(Some((now, reading)));
    reading
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes for this long by the thread's own clock.
    fn compute(time: Duration) {
        let begun = read(Instant::now());
        while read(Instant::now()) - begun < time {}
    }

    #[test]
    fn a_thread_that_sleeps_uses_no_processor_time() {
        let clock = GuestClock::new(Duration::from_millis(100));
        assert!(clock.begin_call(0));
        clock.slice(|| {
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(clock.pace(), TickDecision::GoOn);
        });
        assert!(clock.begin_call(0));
    }

    #[test]
    fn a_call_runs_at_full_speed_as_long_as_what_it_was_handed_takes() {
        let clock = GuestClock::new(Duration::from_millis(100));
        // 1 MB adds 40 ms.
        for (handed_bytes, time_ms) in [(0, 10), (1_000_000, 50)] {
            assert!(clock.begin_call(handed_bytes));
            clock.slice(|| {
                compute(Duration::from_millis(time_ms - 5));
                assert_eq!(clock.pace(), TickDecision::GoOn, "{handed_bytes}");
                compute(Duration::from_millis(6));
                assert_eq!(clock.pace(), TickDecision::AwaitTurn, "{handed_bytes}");
            });
        }
        clock.take_turn();
        clock.slice(|| {
            assert_eq!(clock.pace(), TickDecision::GoOn);
            compute(TICK);
            assert_eq!(clock.pace(), TickDecision::AwaitTurn);
        });
    }

    #[test]
    fn all_calls_draw_on_one_budget_however_short_each_is() {
        let clock = GuestClock::new(Duration::from_millis(20));
        let mut calls = 0;
        while clock.begin_call(0) {
            clock.slice(|| compute(Duration::from_micros(50)));
            calls += 1;
            assert!(calls < 2_000, "it never ends");
        }
        // Each call adds 10 µs to the budget, and takes 50 µs.
        assert!(calls >= 100, "{calls}");
        clock.slice(|| assert_eq!(clock.pace(), TickDecision::Ended));
    }

    #[tokio::test]
    async fn waiting_for_others_is_counted_apart_and_for_one_call() {
        let clock = GuestClock::new(Duration::from_millis(20));
        clock.begin_call(0);
        let waiting = clock.wait();
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(clock.waited() >= Duration::from_millis(30));
        drop(waiting);
        let waited = clock.waited();
        assert!(waited >= Duration::from_millis(30));
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(clock.waited(), waited);
        clock.begin_call(0);
        assert_eq!(clock.waited(), Duration::ZERO);
    }
}
