//! OpenAI's Completions, as a client dialect: editors complete the text at the cursor with it.
//!
//! [`read`] parses a request's body into the plugins' vocabulary; [`TextCompletion`] and [`TextCompletionStream`] write
//! the response's events, as one `text_completion` object or as chunks of the same form.
//!
//! The prompt is a message of the user. The text after the cursor is the field `suffix` beyond the vocabulary: an adapter
//! whose provider fills text in sends both there, and any other adapter refuses the field. Without a suffix, every model
//! serves the prompt.
//!
//! A response is one text. Reasoning, calls and media have no place in it.
//!
//! To accept another field, add it to the object in `request`, and translate it there.

mod answer;
mod request;

use crate::schema::{Described as _, Schemas};
pub use answer::{TextCompletion, TextCompletionStream};
pub use request::read;

/// Adds the schemas of the dialect.
pub(crate) fn describe(schemas: &mut Schemas) {
    request::CompletionRequestBody::schema(schemas);
    answer::describe(schemas);
}
