//! The database's clock, which all nodes share.
//!
//! Decisions of nodes about each other's work, such as the expiry of a lease, must not depend on the clock of one
//! node: they use PostgreSQL's clock. A SQLite file has one process, and uses its clock.
//!
//! The node asks PostgreSQL every few seconds and adds the time since then by its monotonic clock, which nobody sets.
//! A node whose time of day is wrong, or is set while it runs, therefore still knows the time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Database, SqlDialect, at_start};
use crate::clock::{Clock, Millis};

/// Largest clock offset of a node that serves, in milliseconds: signatures, checks and logs use the node's own clock.
const TOLERATED_MS: i64 = 5_000;

/// Time after a jump of the database's clock before the new time counts: a wrong time is usually corrected by then.
const SETTLING: Duration = Duration::from_secs(600);

const NOW: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";

/// The database's clock, as this process knows it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DatabaseClock {
    own: Clock,
    /// The database's clock, if it is not this process's.
    other: Option<Arc<SharedClock>>,
    pace: Arc<Mutex<ClockPace>>,
}

/// Check that the database's clock moves in step with the monotonic clock.
#[derive(Debug, Default)]
struct ClockPace {
    read: Option<Reading>,
    /// The monotonic clock at the last jump.
    jumped_at: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    shown: Millis,
    /// The monotonic clock at that moment.
    at: Duration,
    /// Largest error of `at`: the response may have been under way for long.
    within: Duration,
}

#[derive(Debug)]
struct SharedClock {
    database: Database,
    /// The last response of the clock, and this process's monotonic clock at that moment.
    shown: Mutex<(Millis, Duration)>,
}

impl DatabaseClock {
    /// Asks a database for its time. `own` is this process's clock; if a test moves that clock, it stands for both.
    pub async fn start(database: Database, own: Clock) -> sqlx::Result<Self> {
        let is_own = database.dialect() == SqlDialect::Sqlite || matches!(own, Clock::Manual(_));
        let clock = Self {
            other: (!is_own).then(|| {
                Arc::new(SharedClock {
                    database,
                    shown: Mutex::default(),
                })
            }),
            own,
            pace: Arc::default(),
        };
        at_start(|| clock.ask()).await?;
        Ok(clock)
    }

    /// Returns the time as known without a query.
    pub fn now(&self) -> Millis {
        let Some(other) = &self.other else {
            return self.own.now();
        };
        let (shown, at) = *other.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = self.own.monotonic().saturating_sub(at);
        Millis(shown.0 + passed.as_millis() as i64)
    }

    /// Returns the time, or a little before it, from the database.
    pub async fn ask(&self) -> sqlx::Result<Millis> {
        let Some(other) = &self.other else {
            let shown = self.own.now();
            self.note(Reading {
                shown,
                at: self.own.monotonic(),
                within: Duration::ZERO,
            });
            return Ok(shown);
        };
        let asked = self.own.monotonic();
        let now = sqlx::query_scalar(NOW)
            .fetch_one(other.database.reader())
            .await?;
        // The database read its clock at some moment since then; the middle is off by half of that at most.
        let answered = self.own.monotonic();
        let (shown, at) = (Millis(now), (asked + answered) / 2);
        *other.shown.lock().unwrap_or_else(PoisonError::into_inner) = (shown, at);
        let within = (answered - asked) / 2;
        self.note(Reading { shown, at, within });
        Ok(shown)
    }

    /// Returns the time for work that a wrong time would spoil irreversibly for many users; `None` within 10 minutes
    /// of a jump.
    pub async fn ask_if_steady(&self) -> sqlx::Result<Option<Millis>> {
        let now = self.ask().await?;
        let pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |at| self.own.monotonic().saturating_sub(at);
        let is_steady = pace.jumped_at.is_none_or(|at| since(at) >= SETTLING);
        Ok(is_steady.then_some(now))
    }

    /// Notes a reading of the clock, and whether the clock has jumped since the last one.
    fn note(&self, reading: Reading) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = pace.read.replace(reading) else {
            return;
        };
        let passed_ms = reading.at.as_millis() as i64 - before.at.as_millis() as i64;
        let jump_ms = reading.shown.0 - before.shown.0 - passed_ms;
        let uncertain_ms = (reading.within + before.within).as_millis() as i64;
        if jump_ms.abs() > TOLERATED_MS + uncertain_ms {
            pace.jumped_at = Some(reading.at);
            tracing::error!(
                jump_ms,
                "the database's clock has jumped; sweeps of the ledger pause for {} s",
                SETTLING.as_secs()
            );
        }
    }

    /// Returns the time of the monotonic clock, which nobody sets.
    pub fn monotonic(&self) -> Duration {
        self.own.monotonic()
    }

    /// Describes the offset of this process's clock; `None` if it agrees with the database's.
    pub fn trouble(&self) -> Option<String> {
        let off = self.own.now().0 - self.now().0;
        let direction = if off > 0 { "ahead of" } else { "behind" };
        (off.abs() > TOLERATED_MS).then(|| {
            let seconds = off.unsigned_abs() / 1_000;
            format!("this machine's clock is {seconds} s {direction} the database's")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn reading(shown_ms: i64, at_ms: u64, within_ms: u64) -> Reading {
        Reading {
            shown: Millis(shown_ms),
            at: Duration::from_millis(at_ms),
            within: Duration::from_millis(within_ms),
        }
    }

    #[test]
    fn an_answer_that_was_under_way_for_long_is_no_jump() {
        let clock = DatabaseClock {
            own: Clock::Manual(ManualClock::default()),
            other: None,
            pace: Arc::default(),
        };
        let has_jumped = || clock.pace.lock().expect("a pace").jumped_at.is_some();
        clock.note(reading(0, 0, 0));
        // The request begins at 0 s, and the server reads its clock just before the response at 14 s.
        clock.note(reading(14_000, 7_000, 7_000));
        assert!(!has_jumped());
        clock.note(reading(21_000, 21_000, 0));
        assert!(!has_jumped());
        clock.note(reading(27_500, 22_000, 0));
        assert!(has_jumped());
    }
}
