//! A tool that calls an API of the operator's list, with its credential.

pub mod call;

weir_sdk::export_tool!(call::ApiCall);
