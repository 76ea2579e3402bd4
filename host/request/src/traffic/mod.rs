//! Sums of model requests by hour, for the operator's overview: requests, errors, tokens, spend, and histograms of the
//! time to first token and of the total time.
//!
//! A request adds its figures in memory when it ends ([`Traffic`]). Each node adds its sums to the database every 10 s
//! and when it stops ([`store`]); several nodes add to the same rows. weir deletes sums after 35 days.
//!
//! Each request counts in up to three rows ([`Scope`]): its provider and model, its account, and its key. A list of
//! one kind therefore reads no rows of another.
//!
//! **Invariant:** no request waits for the database. **Invariant:** the sums contain ids, names from the catalog and
//! figures: no prompt and no secret. An erased user's rows are deleted.
//! **Invariant:** the figures are statistics. The ledger alone knows balances and charges.

mod histogram;
mod row;
pub mod store;
mod sums;

pub use self::histogram::Histogram;
pub use self::row::{EndedCall, Fault, Scope, TrafficSums};
pub use self::sums::{KEPT_DAYS, Traffic};
