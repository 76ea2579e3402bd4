//! The pace at which weir reads a fast stream.
//!
//! A model that sends a token every few milliseconds would wake the exchange, the guest and the client's connection for
//! each one. Instead, the streams of a worker thread are read together, at its next tick. Tokens then arrive at most one
//! tick late, and several at once.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use weir_sandbox::adapter::bindings::chat::Event;
use weir_upstream::client::COALESCED_BYTES;

/// Short gaps in a row that make a stream a fast one.
const SHORT_GAPS: u32 = 2;

/// Number of different shifts of the workers' ticks.
const SHIFTS: u32 = 8;

/// When to read next from an upstream's stream.
///
/// **Invariant:** nothing waits before the first piece, in a slow stream, or after the end of a block, such as a tool
/// call, or of the response.
pub(super) struct StreamPace {
    /// The time between two ticks; zero for a stream that never waits.
    period: Duration,
    short_gaps: u32,
}

impl StreamPace {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            period,
            short_gaps: 0,
        }
    }

    /// Notes a piece of this many bytes, and the time for which the read waited for it. After a large piece, more is
    /// already there.
    pub(super) fn note_piece(&mut self, bytes: usize, gap: Duration) {
        let is_short = gap < self.period && bytes < COALESCED_BYTES;
        self.short_gaps = match is_short {
            true => self.short_gaps.saturating_add(1),
            false => 0,
        };
    }

    /// Notes the events of the last piece. After the end of a block, the end of the response may follow.
    pub(super) fn note_events(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::BlockEnd(_) => self.short_gaps = 0,
                Event::Finish(_) => self.period = Duration::ZERO,
                _ => {}
            }
        }
    }

    /// Returns the time of the next read, unless it is now.
    pub(super) fn next_read(&self) -> Option<Instant> {
        if self.period.is_zero() || self.short_gaps < SHORT_GAPS {
            return None;
        }
        // Read first: the first read sets it, and no tick may lie before it.
        let started = *STARTED;
        let now = Instant::now();
        let since = now.duration_since(started) + shift(self.period);
        let period = self.period.as_nanos();
        let left = period - since.as_nanos() % period;
        Some(now + Duration::from_nanos(u64::try_from(left).unwrap_or_default()))
    }
}

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns this thread's shift, so that workers do not wake at the same time.
fn shift(period: Duration) -> Duration {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static NUMBER: Cell<u32> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed));
    }
    period * (NUMBER.get() % SHIFTS) / SHIFTS
}

#[cfg(test)]
mod tests {
    use weir_sandbox::adapter::bindings::chat::{Block, BlockStart, FinishReason};

    use super::*;

    const PERIOD: Duration = Duration::from_millis(5);
    const SHORT: Duration = Duration::from_millis(2);
    const LONG: Duration = Duration::from_millis(5);

    fn fast() -> StreamPace {
        let mut pace = StreamPace::new(PERIOD);
        for _ in 0..SHORT_GAPS {
            assert_eq!(pace.next_read(), None);
            pace.note_piece(100, SHORT);
        }
        pace
    }

    #[test]
    fn a_fast_stream_is_read_at_the_next_tick() {
        let pace = fast();
        let tick = pace.next_read().expect("a tick");
        assert!(tick <= Instant::now() + PERIOD);
        let since = tick.duration_since(*STARTED) + shift(PERIOD);
        assert_eq!(since.as_nanos() % PERIOD.as_nanos(), 0);
    }

    #[test]
    fn a_slow_stream_is_read_at_once() {
        let mut pace = fast();
        pace.note_piece(100, LONG);
        assert_eq!(pace.next_read(), None);
        pace.note_piece(100, SHORT);
        assert_eq!(pace.next_read(), None);
    }

    #[test]
    fn a_stream_that_is_there_already_is_read_at_once() {
        let mut pace = fast();
        pace.note_piece(COALESCED_BYTES, Duration::ZERO);
        assert_eq!(pace.next_read(), None);
    }

    #[test]
    fn the_end_of_a_block_is_followed_by_a_read_at_once() {
        let mut pace = fast();
        pace.note_events(&[Event::BlockStart(BlockStart {
            index: 0,
            block: Block::Text,
        })]);
        assert!(pace.next_read().is_some());
        pace.note_events(&[Event::BlockEnd(0)]);
        assert_eq!(pace.next_read(), None);
    }

    #[test]
    fn nothing_waits_after_the_finish() {
        let mut pace = fast();
        pace.note_events(&[Event::Finish(FinishReason::Stop)]);
        pace.note_piece(100, SHORT);
        pace.note_piece(100, SHORT);
        assert_eq!(pace.next_read(), None);
    }

    #[test]
    fn a_period_of_zero_is_off() {
        let mut pace = StreamPace::new(Duration::ZERO);
        for _ in 0..3 {
            pace.note_piece(100, Duration::ZERO);
        }
        assert_eq!(pace.next_read(), None);
    }
}
