//! The turn to write to SQLite.
//!
//! SQLite has one writer at a time, and makes others sleep and retry. Writers of this process queue here instead, in
//! order; SQLite's own lock is for other processes.
//!
//! sqlx hands each statement to a thread of its own and waits for it, which is most of a small statement's cost. The
//! turn therefore carries a connection that its holder can use directly: a writer uses either sqlx or this
//! connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMappedMutexGuard, OwnedMutexGuard};

/// The turn. Cheap to clone. It has no connection once the database is closed.
#[derive(Debug, Clone)]
pub struct WriteTurn {
    connection: Arc<Mutex<Option<rusqlite::Connection>>>,
    timeout: Duration,
}

/// The turn while a writer holds it.
pub(super) type WriteTurnGuard = OwnedMutexGuard<Option<rusqlite::Connection>>;

/// SQLite's connection without sqlx, while no other thread of this process writes. It blocks the thread.
pub type NativeConnection =
    OwnedMappedMutexGuard<Option<rusqlite::Connection>, rusqlite::Connection>;

impl WriteTurn {
    /// `timeout`: time limit of [`Self::native`].
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

    /// Waits for the turn and the connection, no longer than for a connection of sqlx.
    pub async fn native(&self) -> sqlx::Result<NativeConnection> {
        let turn = tokio::time::timeout(self.timeout, self.take()).await;
        let turn = turn.map_err(|_| sqlx::Error::PoolTimedOut)?;
        OwnedMutexGuard::try_map(turn, Option::as_mut).map_err(|_| sqlx::Error::PoolClosed)
    }

    pub(super) async fn close(&self) {
        self.take().await.take();
    }
}
