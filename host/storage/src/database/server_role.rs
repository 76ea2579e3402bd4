//! The role of a connection's server: a primary accepts writes, a standby does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::{Any, Executor};

/// Time for which each connection is checked before use. A connection that is in use for longer, and fails later, raises
/// another doubt.
const LASTS: Duration = Duration::from_secs(10);

/// The role of a pool: its connections write, or only read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Writer,
    Reader,
}

impl Role {
    /// Returns whether a connection's server serves this role. A reader needs the primary as well, since a standby lags behind.
    pub(super) async fn is_served<'c>(
        self,
        connection: impl Executor<'c, Database = Any>,
    ) -> sqlx::Result<bool> {
        let question = match self {
            Self::Writer => {
                "SELECT NOT pg_is_in_recovery() AND NOT current_setting('transaction_read_only')::boolean"
            }
            Self::Reader => "SELECT NOT pg_is_in_recovery()",
        };
        sqlx::query_scalar(question).fetch_one(connection).await
    }
}

/// A doubt that the pools of a database share: a statement that fails on one connection says that others may be to the same
/// server. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Doubt {
    started: Instant,
    /// Milliseconds from the start to the end of the doubt. Each use of a connection reads it, so it is no lock.
    until_ms: Arc<AtomicU64>,
}

impl Default for Doubt {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            until_ms: Arc::default(),
        }
    }
}

impl Doubt {
    /// Raises the doubt if a statement failed because of its server's role or end.
    pub(super) fn consider(&self, error: &sqlx::Error) {
        if is_of_server(error) {
            self.raise(self.started.elapsed());
        }
    }

    pub(super) fn is_raised(&self) -> bool {
        self.is_raised_at(self.started.elapsed())
    }

    fn raise(&self, at: Duration) {
        let until = (at + LASTS).as_millis() as u64;
        self.until_ms.fetch_max(until, Ordering::Relaxed);
    }

    fn is_raised_at(&self, at: Duration) -> bool {
        (at.as_millis() as u64) < self.until_ms.load(Ordering::Relaxed)
    }
}

/// Returns whether an error shows that a connection's server is not the primary, or is about to stop (SQLSTATE
/// `read_only_sql_transaction`, `operator_intervention` of a server, `connection_exception`).
fn is_of_server(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    error.code().is_some_and(|code| {
        ["25006", "57P01", "57P02", "57P03"].contains(&&*code) || code.starts_with("08")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_shared_and_ends_after_its_last_reason() {
        let doubt = Doubt::default();
        let of_another_pool = doubt.clone();
        let at = Duration::from_secs;
        assert!(!doubt.is_raised_at(at(0)));
        doubt.raise(at(1));
        of_another_pool.raise(at(5));
        // A late report of an earlier failure shortens nothing.
        doubt.raise(at(2));
        for (seconds, is_raised) in [(5, true), (14, true), (15, false), (60, false)] {
            assert_eq!(doubt.is_raised_at(at(seconds)), is_raised, "{seconds}");
        }
    }
}
