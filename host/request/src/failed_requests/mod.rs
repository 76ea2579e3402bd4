//! Failed model requests: one record each, for its account and for operators, for 30 days.
//!
//! A request puts its failure into a queue when it ends ([`crate::write_behind`]). One statement writes the failures of
//! a second ([`store`]). At most 20 failures of an account and minute are stored, over all nodes; the others are counted
//! by account and minute.
//!
//! The account sees the code, the field, the limit and weir's message ([`AccountError`]). Operators also see the status
//! and the text of providers, and the number of the credential ([`FailedAttempt`]).
//!
//! **Invariant:** a stored row has ids, names from the catalog and figures in plain text. weir's message and the text of
//! providers, which may quote a request, are redacted and sealed.
//! **Invariant:** an account never sees the text of a provider here.

mod queue;
mod record;
pub mod store;

pub use self::queue::{FailedRequests, JoinedFailure};
pub use self::record::{AccountError, FailedAttempt, FailedRequest, KEPT_DAYS, TEXT_BYTES};
