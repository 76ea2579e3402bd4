//! Translates for Acme's text API.

pub mod translate;

weir_sdk::export_adapter!(translate::Translation);
