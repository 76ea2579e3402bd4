//! A filter that removes personal data from requests and their responses.
//!
//! The table in [`kinds`] lists the kinds of data. The filter redacts a request in one piece, and a response as it
//! arrives ([`answer`]); only text that could still become a match is held back.

pub mod answer;
pub mod kinds;
pub mod request;

weir_sdk::export_filter!(request::RedactPii);
