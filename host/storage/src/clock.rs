//! Time as milliseconds since the Unix epoch, and its sources.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The source of time. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Clock {
    System,
    /// The system's clock with an offset in milliseconds, as a machine with a wrong clock has: for tests.
    Off(i64),
    /// A test's clock.
    Manual(ManualClock),
}

/// A clock that stands still until a test moves it. Its clones share one time.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<ManualTime>);

#[derive(Debug, Default)]
struct ManualTime {
    /// Microseconds of the monotonic clock.
    passed: AtomicU64,
    /// Offset of the time of day from it, in milliseconds.
    jumped: AtomicI64,
}

/// Milliseconds since the Unix epoch: what the database stores.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub i64);

impl Clock {
    /// Returns the time of day.
    pub fn now(&self) -> Millis {
        match self {
            Self::System => Millis::now(),
            Self::Off(by) => Millis(Millis::now().0 + by),
            Self::Manual(clock) => Millis(clock.passed_ms() + clock.jumped_ms()),
        }
    }

    /// Returns the time since an arbitrary origin. Never goes back, unlike the time of day.
    pub fn monotonic(&self) -> Duration {
        static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        match self {
            Self::System | Self::Off(_) => ORIGIN.elapsed(),
            Self::Manual(clock) => Duration::from_micros(clock.0.passed.load(Ordering::SeqCst)),
        }
    }
}

impl ManualClock {
    /// A clock that stands at this moment, which must not be before 1970.
    pub fn at(moment: Millis) -> Self {
        let clock = Self::default();
        clock.set(moment);
        clock
    }

    pub fn set(&self, moment: Millis) {
        let millis = moment.0 - self.jumped_ms();
        let millis = u64::try_from(millis).expect("a moment after 1970");
        self.0.passed.store(millis * 1_000, Ordering::SeqCst);
    }

    /// Moves the time of day by `by_ms`, back if negative; the monotonic clock does not move.
    pub fn jump(&self, by_ms: i64) {
        self.0.jumped.fetch_add(by_ms, Ordering::SeqCst);
    }

    fn passed_ms(&self) -> i64 {
        (self.0.passed.load(Ordering::SeqCst) / 1_000) as i64
    }

    fn jumped_ms(&self) -> i64 {
        self.0.jumped.load(Ordering::SeqCst)
    }

    /// Advances both clocks.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).expect("a test takes less than a million years");
        self.0.passed.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Millis {
    /// Returns the system's time of day.
    pub fn now() -> Self {
        Self(Timestamp::now().as_millisecond())
    }

    /// Returns the moment `days` later.
    #[must_use]
    pub fn plus_days(self, days: i64) -> Self {
        Self(self.0 + days * 86_400_000)
    }

    /// Formats the moment in UTC by ISO 8601, e.g. `2026-02-03T04:05:06.789Z`.
    pub fn iso(self) -> String {
        Timestamp::from_millisecond(self.0).map_or_else(|_| String::new(), |at| at.to_string())
    }

    /// Parses an ISO 8601 moment with its offset from UTC.
    pub fn parse(text: &str) -> Option<Self> {
        let moment: Timestamp = text.parse().ok()?;
        Some(Self(moment.as_millisecond()))
    }

    /// Returns complete seconds, the unit of OpenAI's `created` fields.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }
}
