//! The role of a connection's server: a primary accepts writes, a standby does not.

use std::sync::{Arc, Mutex, PoisonError};
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
#[derive(Debug, Clone, Default)]
pub(super) struct Doubt(Arc<Mutex<Option<Instant>>>);

impl Doubt {
    /// Raises the doubt if a statement failed because of its server's role or end.
    pub(super) fn consider(&self, error: &sqlx::Error) {
        if is_of_server(error) {
            let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *since = Some(Instant::now());
        }
    }

    pub(super) fn is_raised(&self) -> bool {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *since = since.filter(|since| since.elapsed() < LASTS);
        since.is_some()
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
