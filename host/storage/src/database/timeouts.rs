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

impl Timeouts {
    /// The limits of commands, which a person waits for, also on a busy machine: 10 s and 60 s.
    pub const fn patient() -> Self {
        Self {
            acquire: Duration::from_secs(10),
            statement: Duration::from_secs(60),
        }
    }
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
