//! Whose turn it is to write to SQLite.
//!
//! SQLite lets one connection write at a time, and lets others sleep and look again. Those of this process
//! queue here instead, in order; SQLite's own lock is for other processes.
//!
//! sqlx hands each statement to a thread of its own and waits for it, which is most of what a small statement
//! costs. So what is passed round is a connection that can be used at once: whoever has the turn writes either
//! through sqlx, or on it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMappedMutexGuard, OwnedMutexGuard};

/// The turn. Cheap to clone. Without a connection once the database is closed.
#[derive(Debug, Clone)]
pub struct WriteTurn {
    connection: Arc<Mutex<Option<rusqlite::Connection>>>,
    timeout: Duration,
}

/// The turn while somebody has it.
pub(super) type WriteTurnGuard = OwnedMutexGuard<Option<rusqlite::Connection>>;

/// SQLite's connection without sqlx, while nobody else of this process writes. It blocks the thread.
pub type Native = OwnedMappedMutexGuard<Option<rusqlite::Connection>, rusqlite::Connection>;

impl WriteTurn {
    /// `timeout`: how long is waited for [`Self::native`].
    pub(super) fn new(native: rusqlite::Connection, timeout: Duration) -> Self {
        Self {
            connection: Arc::new(Mutex::new(Some(native))),
            timeout,
        }
    }

    /// Waits for the turn, to use sqlx.
    pub(super) async fn take(&self) -> WriteTurnGuard {
        self.connection.clone().lock_owned().await
    }

    /// Waits for the turn and the connection, no longer than for one of sqlx's.
    pub async fn native(&self) -> sqlx::Result<Native> {
        let turn = tokio::time::timeout(self.timeout, self.take()).await;
        let turn = turn.map_err(|_| sqlx::Error::PoolTimedOut)?;
        OwnedMutexGuard::try_map(turn, Option::as_mut).map_err(|_| sqlx::Error::PoolClosed)
    }

    /// Closes the connection.
    pub(super) async fn close(&self) {
        self.take().await.take();
    }
}
