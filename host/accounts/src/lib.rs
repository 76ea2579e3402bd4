//! Accounts as their users see them: credits, usage, keys, members and payments.
//!
//! - [`billing`]: balances, usage, budgets, statements and exports of the [ledger](weir_ledger).
//! - [`keys`]: API keys as their users manage them; [`organisations`]: members, projects and their budgets.
//! - [`payments`] and [`vouchers`]: plans and credits.

pub mod billing;
pub mod keys;
pub mod organisations;
pub mod payments;
pub mod vouchers;
