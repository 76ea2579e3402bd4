//! A tool that posts to a URL.

pub mod call;

weir_sdk::export_tool!(call::HttpPost);
