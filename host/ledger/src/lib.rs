//! The prices of requests, and the ledger of the credits that pay for them.
//!
//! A request's worst-case price is *held* before its upstream is called, then *settled* at the actual price, or
//! *released* if nothing was delivered. Amounts are [`Credits`], exact integers from the price list to the database.
//!
//! - [`credits`], [`price`], [`plans`]: amounts, providers' prices, accounts' plans; [`pricing`]: the cost of a
//!   request; [`usage`]: its usage.
//! - [`operation`]: the operations of the ledger; [`account`]: their effects, as plain functions.
//! - [`budgets`]: limits on the spending of an account or a key in a window.
//! - [`committer`]: many operations in one transaction; [`store`]: its SQL; [`verify`]: verification of the stored
//!   data.
//! - `openings`: holds in memory, so that a request needs one write; on PostgreSQL they come from *blocks*, credits that
//!   a node has reserved in advance. [`log`] makes their ends durable without the rows of their accounts.
//! - [`receipt`]: the facts behind each charge, which entries keep; the entries of an account form a chain of hashes.
//! - [`archive`]: the removal of old entries from the database.
//! - [`Ledger`] is the interface for requests; [`keys`]: one outcome for each idempotency key; [`idempotency`]: the
//!   responses that are stored with keys.
//!
//! **Invariant:** nothing outside this crate writes a row of the ledger.
//! **Invariant:** an operation whose caller has received its outcome is durable, after any crash. The only exception is the
//! hold of a request, which can be in memory; its end is durable.
//! **Invariant:** a hold ends once. The hold of a failed node ends within the node's lease and one sweep, at its last
//! checkpoint; if the node returns with a settlement, the difference is posted.
//!
//! **Architecture invariant:** this crate knows neither HTTP, nor plugins, nor a provider's wire format. The caller
//! counts a request's usage and reports it here; the ledger calls no other part.
//!
//! **Invariant:** leases, periods and the expiry of idempotency keys use the database's clock, never a node's. A node
//! with a wrong clock therefore ends nothing of other nodes.
//!
//! | To … | touch |
//! |---|---|
//! |change the order in which credits are spent | [`account`] and its table test |
//! |change a plan's credits | [`plans`] |
//! |change the conversion of prices to charges | [`pricing`] |
//! |add a count to usage | [`usage::UsageCounts`], a migration that adds its column |
//! |add an operation | a variant of [`operation::Action`], its effect in [`account`]; a migration if it posts an entry of a new kind |

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
pub mod log;
pub mod openings;
pub mod operation;
pub mod plans;
pub mod price;
pub mod pricing;
pub mod receipt;
pub mod settings;
pub mod shortage;
pub mod store;
pub mod usage;
pub mod verify;

pub use self::account::Account;
pub use self::budgets::{
    Budget, BudgetAlert, BudgetExceeded, BudgetPart, BudgetState, BudgetWindow, Budgets,
    MOST_WINDOWS, SetBudgets,
};
pub use self::credits::Credits;
pub use self::health::LedgerMetrics;
pub use self::ledger::{Ledger, LedgerError, Settlement, commit_one};
pub use self::operation::{
    AccountId, Action, Adjust, BootId, ChangeDirection, Checkpoint, EndKey, Grant, HoldId,
    HoldState, IdempotencyClaim, KeyConflict, LedgerRefusal, MAX_KEY_BYTES, OpenHold, Operation,
    OperationEffect, OperationId, OperationOutcome, OperationRequest, Payer, Pool, Refund,
    RequestSource, ServedRequest, Settle, TopUp,
};
pub use self::plans::{Period, Plan};
pub use self::settings::{LeaseSettings, LedgerSettings};
pub use self::store::{Fold, LedgerStore, LedgerStoreError};
pub use self::usage::{
    Quantity, QuantitySum, RequestUsage, TokenCounts, Unit, UsageCounts, UsageSums,
};
