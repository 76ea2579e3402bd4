//! The role of a connection's server: a primary accepts writes, a standby does not.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::{Any, Executor, Row as _};
use tokio::sync::Notify;

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
        // A simple query prepares nothing: behind a pooler in transaction mode, the session may have such a statement of
        // another program, and the start must reach the check that names the pooler.
        let row = sqlx::raw_sql(question).fetch_one(connection).await?;
        row.try_get(0)
    }
}

/// A doubt that the pools of a database share: a statement that fails on one connection says that others may be to the same
/// server. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Doubt(Arc<DoubtState>);

#[derive(Debug)]
struct DoubtState {
    started: Instant,
    /// Milliseconds from the start to the end of the doubt. Each use of a connection reads it, so it is no lock.
    until_ms: AtomicU64,
    failed: Notify,
}

impl Default for DoubtState {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            until_ms: AtomicU64::default(),
            failed: Notify::default(),
        }
    }
}

impl Doubt {
    /// Raises the doubt if a statement failed because of its server's role or end.
    pub(super) fn consider(&self, error: &sqlx::Error) {
        if is_of_server(error) {
            self.raise(self.0.started.elapsed());
        }
        if is_of_server(error) || is_of_connection(error) {
            self.0.failed.notify_one();
        }
    }

    /// Waits for a failure that another server may not have, unless one came since the last wait.
    pub(super) async fn has_failed(&self) {
        self.0.failed.notified().await;
    }

    pub(super) fn is_raised(&self) -> bool {
        self.is_raised_at(self.0.started.elapsed())
    }

    fn raise(&self, at: Duration) {
        let until = (at + LASTS).as_millis() as u64;
        self.0.until_ms.fetch_max(until, Ordering::Relaxed);
    }

    fn is_raised_at(&self, at: Duration) -> bool {
        (at.as_millis() as u64) < self.0.until_ms.load(Ordering::Relaxed)
    }
}

/// Returns whether an error shows that a connection's server is not the primary, or stops or has stopped (SQLSTATE
/// `read_only_sql_transaction`, `operator_intervention` of a server, `connection_exception`, or a closed connection).
fn is_of_server(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() != io::ErrorKind::TimedOut,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            ["25006", "57P01", "57P02", "57P03"].contains(&&*code) || code.starts_with("08")
        }),
        _ => false,
    }
}

/// Returns whether an error shows that a server is silent or unusable. So may a busy machine, so it raises no doubt.
fn is_of_connection(error: &sqlx::Error) -> bool {
    matches!(
        error,
        sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
    )
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
