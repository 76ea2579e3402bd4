//! What requests cost, and the ledger that they are paid from.
//!
//! A request's worst-case price is *held* before its upstream is called, then *settled* at the actual price, or
//! *released* if nothing was delivered. Amounts are [`Credits`], exact integers from the price list to the database.
//!
//! - [`credits`], [`price`], [`plans`]: amounts, what providers ask, what accounts get; [`pricing`]: what a request
//!   costs; [`usage`]: what it used.
//! - [`operation`]: what can be asked of the ledger; [`account`]: what that does, as plain functions.
//! - [`budgets`]: how much an account or a key may spend in which time.
//! - [`committer`]: many operations in one transaction; [`store`]: the SQL of it; [`verify`]: whether what is stored
//!   is sound.
//! - [`archive`]: how old entries leave the database.
//! - [`Ledger`] is what requests use; [`keys`]: one outcome for each idempotency key that they bring; [`idempotency`]: the
//!   answers that are kept with them.
//!
//! **Invariant:** nothing outside this crate writes a row of the ledger.
//! **Invariant:** whoever is told that something is done will find it done, whatever crashes.
//! **Invariant:** a hold ends once. One whose node went away ends within the node's lease and one sweep, at
//! its last checkpoint; if the node comes back with more to say, the difference is posted.
//!
//! **Architecture invariant:** nothing here knows HTTP, a plugin, or a provider's wire format. Whoever serves a
//! request counts what it used, and says so here; the ledger asks nobody.
//!
//! **Invariant:** leases, periods and the life of idempotency keys go by the database's clock, never by a node's. So a
//! node whose clock is wrong ends nothing of the others'.
//!
//! | To … | touch |
//! |---|---|
//! | change which credits are spent first | [`account`] and its table test |
//! | change what a plan gives | [`plans`] |
//! | change how a price becomes a charge | [`pricing`] |
//! | count another thing in usage | [`usage::UsageCounts`], a migration that adds its column |
//! | add an operation | a variant of [`operation::Action`], what it does in [`account`]; a migration if it posts an entry of a new kind |

pub mod account;
pub mod archive;
pub mod budgets;
pub mod committer;
pub mod credits;
mod decimal;
mod health;
pub mod idempotency;
pub mod keys;
mod ledger;
pub mod operation;
pub mod plans;
pub mod price;
pub mod pricing;
pub mod settings;
pub mod store;
pub mod usage;
pub mod verify;

pub use self::account::Account;
pub use self::budgets::{Budget, Budgets, Exceeded, MOST_WINDOWS, SetBudgets, Standing, Window};
pub use self::credits::Credits;
pub use self::health::LedgerMetrics;
pub use self::ledger::{KeptOpen, Ledger, LedgerError, Settlement, commit_one};
pub use self::operation::{
    AccountId, Action, Adjust, Asked, BootId, Checkpoint, Claim, Done, EndKey, Grant, HoldId,
    HoldState, MAX_KEY_BYTES, Open, Operation, OperationId, Outcome, Payer, Pool, Refund, Refusal,
    RequestSource, Served, Settle, Taken, TopUp, Way,
};
pub use self::plans::{Period, Plan};
pub use self::settings::{LeaseSettings, LedgerSettings};
pub use self::store::{Fold, Store, StoreError};
pub use self::usage::{RequestUsage, TokenCounts, UsageCounts, UsageSums};
