//! What users are shown of their account, and what it is brought up to date by.
//!
//! What requests cost, and what they are paid from, is [`weir_ledger`]'s; what a request is charged however it ends
//! is [`crate::inference::meter`]'s.
//!
//! **Invariant:** nothing here writes a row of the ledger.
//!
//! What may be spent in which time is in [`budgets`].
//!
//! To show users another figure of their account, edit [`usage`]; of what they have used, [`history`]; of what has
//! changed their credits, [`statement`].

pub mod budgets;
pub mod history;
pub mod routes;
pub mod statement;
pub mod usage;
