//! A tool that fetches a URL.

pub mod call;

weir_sdk::export_tool!(call::HttpGet);
