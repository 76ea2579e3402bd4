//! Failed model requests, for operators: each has its error code, provider and account for 30 days.
//!
//! A request puts its failure into a queue when it ends ([`crate::write_behind`]). One statement writes the failures of
//! a second ([`store`]). At most 600 failures of an account and hour are stored, over all nodes; a metric counts the
//! others.
//!
//! **Invariant:** a row has ids, names from the catalog and figures: no prompt, no message and no secret.

mod queue;
mod record;
pub mod store;

pub use self::queue::FailedRequests;
pub use self::record::{FailedRequest, KEPT_DAYS};
