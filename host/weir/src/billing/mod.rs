//! What requests cost, and the ledger that they are paid from.
//!
//! A request's worst-case price is *held* before its upstream is called, then *settled* at the actual
//! price, or *released* if nothing was delivered. Amounts are [`Credits`], exact integers from the price
//! list to the database.
//!
//! **Invariant:** nothing outside this folder writes a row of the ledger.
//! **Invariant:** nothing here but [`routes`] knows HTTP, and nothing a provider's wire format.
//!
//! To change what a plan gives, edit [`plans`]; how prices become charges, [`pricing`]; what a request is charged
//! however it ends, [`meter`]; which credits are spent first, [`ledger::account`]; what users are shown of it,
//! [`usage`].

pub mod credits;
pub mod idempotency;
pub mod ledger;
pub mod meter;
pub mod plans;
pub mod pricing;
pub mod routes;
pub mod settings;
pub mod usage;

pub use self::credits::Credits;
pub use self::ledger::Ledger;
pub use self::plans::{Period, Plan};
