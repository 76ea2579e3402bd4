//! `Core`: the stores, the clock and the audit of a node, for features and for commands without a running gateway.

use weir_storage::clock::Clock;
use weir_storage::{Cache, Database};

use crate::audit::Audit;
use crate::csv_export::Exports;

/// What is known of users, and what operators change about them: as much of a gateway as a command has while none runs.
/// Cheap to clone.
#[derive(Clone)]
pub struct Core {
    /// The database: what must last.
    pub database: Database,
    /// The cache: key checks, rates and lockouts.
    pub cache: Cache,
    /// The queue of security events.
    pub audit: Audit,
    /// The clock, which tests set.
    pub clock: Clock,
    /// The CSV exports in progress.
    pub exports: Exports,
}

impl Core {
    /// Writes what is to be written yet, and closes the database.
    pub async fn close(&self) {
        self.audit.flush().await;
        self.database.close().await;
    }
}
