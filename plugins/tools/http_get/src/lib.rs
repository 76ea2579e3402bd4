//! Fetches what is at a URL.

pub mod call;

weir_sdk::export_tool!(call::HttpGet);
