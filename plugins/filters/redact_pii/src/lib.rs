//! A filter that hides personal data of requests from providers.
//!
//! The table in [`kinds`] lists the kinds of data. The filter replaces the data of a [`request`] by [`placeholders`],
//! in one piece. It puts the data back into the response as the response arrives ([`response`]), and redacts the data that
//! the model makes up. Only text that could still become a match is held back.
//!
//! Names, ids, schemas and grammars cannot change, and neither can signed reasoning. A request with personal data there is
//! refused, and so is one with an image, a recording or a file, unless the operator lets them pass.
//!
//! **Invariant:** the data is in the memory of the request's own guest only, and in no log and no error.

pub mod kinds;
pub mod placeholders;
pub mod request;
pub mod response;

weir_sdk::export_filter!(request::RedactPii);
