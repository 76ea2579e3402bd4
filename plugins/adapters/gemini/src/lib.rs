//! Translates for Google's Gemini API, generateContent.
//!
//! All of it is in [`translate`]; this file only makes it a component.

pub mod translate;

weir_sdk::export_adapter!(translate::Gemini);
