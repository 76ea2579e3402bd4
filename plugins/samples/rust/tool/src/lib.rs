//! Looks customers up in Acme's CRM.

pub mod call;

weir_sdk::export_tool!(call::Lookup);
