//! The time by the database's clock, which all nodes share.
//!
//! What nodes decide about each other's work, such as whose lease is over, must not depend on whose clock is asked: so it
//! is PostgreSQL's. A SQLite file has one process, whose clock it is.
//!
//! PostgreSQL is asked every few seconds; in between, the time that has passed since then is added by a clock that nobody
//! sets. So that a node whose time of day is wrong, or is set while it runs, still knows the time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Database, SqlDialect, at_start};
use crate::clock::{Clock, Millis};

/// How far a node's clock may be off before that node is not to serve: what it signs, checks and logs goes by its own.
const TOLERATED_MS: i64 = 5_000;

/// How long after a jump of the database's clock the new time is not acted on: a wrong time is mostly set right by then.
const SETTLING: Duration = Duration::from_secs(600);

const NOW: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";

/// The database's clock, as far as this process knows it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DatabaseClock {
    own: Clock,
    /// Where the clock is another one than this process's.
    other: Option<Arc<Other>>,
    pace: Arc<Mutex<Pace>>,
}

/// Whether the time goes on as the monotonic clock does.
#[derive(Debug, Default)]
struct Pace {
    /// What was shown last, and the monotonic clock at that moment.
    shown: Option<(Millis, Duration)>,
    /// The monotonic clock when a jump was seen last.
    jumped_at: Option<Duration>,
}

#[derive(Debug)]
struct Other {
    database: Database,
    /// What it showed when it was last asked, and this process's monotonic clock at that moment.
    shown: Mutex<(Millis, Duration)>,
}

impl DatabaseClock {
    /// Asks a database for its time. `own` is this process's clock; where a test turns that, it stands for both.
    pub async fn start(database: Database, own: Clock) -> sqlx::Result<Self> {
        let is_own = database.dialect() == SqlDialect::Sqlite || matches!(own, Clock::Manual(_));
        let clock = Self {
            other: (!is_own).then(|| {
                Arc::new(Other {
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

    /// This moment, as far as it is known without asking.
    pub fn now(&self) -> Millis {
        let Some(other) = &self.other else {
            return self.own.now();
        };
        let (shown, at) = *other.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = self.own.monotonic().saturating_sub(at);
        Millis(shown.0 + passed.as_millis() as i64)
    }

    /// This moment, or a little before it, as the database says.
    pub async fn ask(&self) -> sqlx::Result<Millis> {
        let Some(other) = &self.other else {
            let now = self.own.now();
            self.note(now, self.own.monotonic());
            return Ok(now);
        };
        let asked = self.own.monotonic();
        let now = sqlx::query_scalar(NOW)
            .fetch_one(other.database.reader())
            .await?;
        // It looked at some moment since then; the middle is off by half of that at most.
        let at = (asked + self.own.monotonic()) / 2;
        *other.shown.lock().unwrap_or_else(PoisonError::into_inner) = (Millis(now), at);
        self.note(Millis(now), at);
        Ok(Millis(now))
    }

    /// The same for work that a wrong time would do to many at once, and nobody could undo; `None` within 10 minutes of a jump.
    pub async fn ask_if_steady(&self) -> sqlx::Result<Option<Millis>> {
        let now = self.ask().await?;
        let pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |at| self.own.monotonic().saturating_sub(at);
        let is_steady = pace.jumped_at.is_none_or(|at| since(at) >= SETTLING);
        Ok(is_steady.then_some(now))
    }

    /// Notes what the clock shows, and whether it has jumped since it was asked last.
    fn note(&self, now: Millis, at: Duration) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, before_at)) = pace.shown.replace((now, at)) {
            let passed_ms = at.as_millis() as i64 - before_at.as_millis() as i64;
            let jump_ms = now.0 - before.0 - passed_ms;
            if jump_ms.abs() > TOLERATED_MS {
                pace.jumped_at = Some(at);
                tracing::error!(
                    jump_ms,
                    "the database's clock has jumped; sweeps of the ledger pause for {} s",
                    SETTLING.as_secs()
                );
            }
        }
    }

    /// How much time has passed, by the clock that nobody sets.
    pub fn monotonic(&self) -> Duration {
        self.own.monotonic()
    }

    /// What is wrong with this process's clock, in words; `None` if it shows what the database's does, more or less.
    pub fn trouble(&self) -> Option<String> {
        let off = self.own.now().0 - self.now().0;
        let direction = if off > 0 { "ahead of" } else { "behind" };
        (off.abs() > TOLERATED_MS).then(|| {
            let seconds = off.unsigned_abs() / 1_000;
            format!("this machine's clock is {seconds} s {direction} the database's")
        })
    }
}
