//! Users' accounts: balances, usage, statements and exports.
//!
//! [`weir_ledger`] computes the costs of requests and charges them; [`crate::inference::meter`] decides the charge for
//! each way in which a request ends.
//!
//! **Invariant:** nothing here writes a row of the ledger.
//!
//! [`budgets`]: budgets of users and keys.
//!
//! [`crate::csv_export`] writes tables; [`export`] writes them for other tools.
//!
//! To add a figure of the account, edit [`usage`]; of its usage, [`history`]; of its credits' changes, [`statement`].

pub mod budgets;
pub mod export;
pub mod history;
pub mod routes;
pub mod statement;
pub mod usage;
