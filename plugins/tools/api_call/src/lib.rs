//! Calls an API that the operator has listed, with its credential.

pub mod call;

weir_sdk::export_tool!(call::ApiCall);
