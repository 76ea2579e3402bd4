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

const NOW: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";

/// The database's clock, as far as this process knows it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DatabaseClock {
    own: Clock,
    /// Where the clock is another one than this process's.
    other: Option<Arc<Other>>,
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
            return Ok(self.own.now());
        };
        let asked = self.own.monotonic();
        let now = sqlx::query_scalar(NOW)
            .fetch_one(other.database.reader())
            .await?;
        // It looked at some moment since then; the middle is off by half of that at most.
        let at = (asked + self.own.monotonic()) / 2;
        *other.shown.lock().unwrap_or_else(PoisonError::into_inner) = (Millis(now), at);
        Ok(Millis(now))
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
