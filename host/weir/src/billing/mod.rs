//! What users are shown of their account, and what it is brought up to date by.
//!
//! What requests cost, and what they are paid from, is [`weir_ledger`]'s; what a request is charged however it ends
//! is [`crate::inference::meter`]'s.
//!
//! **Invariant:** nothing here writes a row of the ledger.
//!
//! What may be spent in which time is in [`budgets`].
//!
//! What leaves as a table is written by [`csv`]; for other tools, by [`export`].
//!
//! To show users another figure of their account, edit [`usage`]; of what they have used, [`history`]; of what has
//! changed their credits, [`statement`].

pub mod budgets;
pub mod csv;
pub mod export;
pub mod history;
pub mod routes;
pub mod statement;
pub mod summary_cache;
pub mod usage;
