//! A filter that asks a moderation service about each request.
//!
//! The service speaks OpenAI's Moderations API: `POST` with `model` and `input`, and `results` with `flagged` and
//! `categories`. The operator configures its URL and its credential; the filter writes and reads bodies only.

pub mod moderate;

weir_sdk::export_filter!(moderate::Moderate);
