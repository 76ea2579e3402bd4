//! A filter that hides personal data of requests from providers.
//!
//! The table in [`kinds`] lists the kinds of data. The filter replaces the data of a [`request`] by [`placeholders`],
//! in one piece. It puts the data back into the response as the response arrives ([`answer`]), and redacts the data that
//! the model makes up. Only text that could still become a match is held back.
//!
//! **Invariant:** the data is in the memory of the request's own guest only, and in no log and no error.

pub mod answer;
pub mod json;
pub mod kinds;
pub mod placeholders;
pub mod request;
pub mod texts;

weir_sdk::export_filter!(request::RedactPii);
