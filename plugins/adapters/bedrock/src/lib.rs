//! Translates for Amazon Bedrock's Converse API.
//!
//! All of it is in [`translate`]; this file only makes it a component.

pub mod translate;

weir_sdk::export_adapter!(translate::Bedrock);
