//! Takes personal data out of requests, and of their answers.
//!
//! What is found, and how, is the table in [`kinds`]. A request is redacted as a whole; an answer as it comes, by
//! [`answer`], which holds back only what could still become a match.

pub mod answer;
pub mod kinds;
pub mod request;

weir_sdk::export_filter!(request::RedactPii);
