//! `Core`: the stores, the clock and the audit of a node, for features and for commands without a running gateway.

pub mod stores;

use weir_storage::background::Background;
use weir_storage::clock::Clock;
use weir_storage::{Cache, Database};

use crate::audit::Audit;
use crate::csv_export::Exports;

/// Users and operators' changes of them: the part of a gateway that a command has while no gateway runs. Cheap to
/// clone.
#[derive(Clone)]
pub struct Core {
    /// The database: all durable data.
    pub database: Database,
    /// The cache: verified keys, rate limits and lockouts.
    pub cache: Cache,
    /// The queue of security events.
    pub audit: Audit,
    /// The clock, which tests control.
    pub clock: Clock,
    /// The work that the node repeats.
    pub background: Background,
    /// CSV exports in progress.
    pub exports: Exports,
}

impl Core {
    /// Writes pending data, and closes the database.
    pub async fn close(&self) {
        self.audit.flush().await;
        self.database.close().await;
    }
}
