//! The time limits of requests on a database.

use std::time::Duration;

/// Time limits of requests on a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Wait for a connection. sqlx's default is 30 s.
    pub acquire: Duration,
    /// A statement, including the wait for a connection.
    pub statement: Duration,
}

impl Default for Timeouts {
    /// 250 ms and 1 s.
    fn default() -> Self {
        Self {
            acquire: Duration::from_millis(250),
            statement: Duration::from_secs(1),
        }
    }
}
