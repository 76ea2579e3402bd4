//! Translates for OpenAI's Chat Completions API, and for every upstream that speaks it.
//!
//! All of it is in [`translate`]; this file only makes it a component.

pub mod translate;

weir_sdk::export_adapter!(translate::OpenAi);
