//! Failed model requests, for operators: each has its error code, provider and account for 30 days.
//!
//! A request puts its failure into a bounded queue when it ends. One task gathers the failures of a second, and writes
//! them with one statement ([`store`]). At most 600 failures of an account and hour are stored, over all
//! nodes; a metric counts the others, and those that do not fit into the queue or the database.
//!
//! **Invariant:** no request waits for the queue or the database. **Invariant:** a row has ids, names from the catalog
//! and figures: no prompt, no message and no secret.

mod queue;
mod record;
pub mod store;

pub use self::queue::FailedRequests;
pub use self::record::{FailedRequest, KEPT_DAYS};
