//! Users' accounts: balances, usage, statements and exports.
//!
//! [`weir_ledger`] computes the costs of requests and charges them; [`weir::inference::meter`] decides the charge for
//! each way in which a request ends.
//!
//! **Invariant:** nothing here writes a row of the ledger.
//!
//! [`budgets`]: budgets of users and keys.
//!
//! [`weir_request::csv_export`] writes tables; [`export`] writes them for other tools.
//!
//! To add a figure of the account, edit [`usage`]; of its usage, [`history`]; of its credits' changes, [`statement`].

pub mod budgets;
pub mod content;
pub mod export;
pub mod history;
pub mod routes;
pub mod statement;
pub mod summary_cache;
pub mod usage;

use std::sync::Arc;

use weir_ledger::Ledger;
use weir_request::audit::Audit;
use weir_request::content_log::ContentLog;
use weir_request::csv_export::Exports;
use weir_request::failed_requests::FailedRequests;
use weir_storage::{Cache, Database};

/// The parts of a gateway that account pages and exports use. Cheap to clone.
#[derive(Clone)]
pub struct BillingParts {
    /// The database: accounts and entries.
    pub database: Database,
    /// The cache: summaries of accounts.
    pub cache: Cache,
    pub ledger: Ledger,
    /// CSV exports in progress.
    pub exports: Exports,
    /// The queue of security events.
    pub audit: Audit,
    /// The records of failed requests.
    pub failures: Arc<FailedRequests>,
    /// The log of prompts and responses, if the configuration allows one.
    pub content_log: Option<Arc<ContentLog>>,
}
