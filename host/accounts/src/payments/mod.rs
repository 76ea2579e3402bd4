//! The endpoints of [payments](weir_payments): checkout pages, the webhook, notices, auto top-up, and the operators' list of
//! events.
//!
//! **Invariant:** handlers only translate between HTTP and `weir-payments`, which has the rules and the SQL.

pub mod admin;
pub mod auto_top_up;
pub mod local;
pub mod notices;
pub mod routes;
pub mod webhook;
