//! OpenAI's Speech, as a client dialect: a spoken text.
//!
//! [`read`] reads a request, and [`SpeechStream`] writes the response: the bytes of the recording as they arrive, or events
//! with pieces of it. Bytes have no place for an error, so the connection of an incomplete response breaks.

mod answer;
mod request;
#[cfg(test)]
mod tests;

pub use answer::SpeechStream;
pub use request::read;

pub use crate::dialect::SpeechForm;
use crate::schema::{Described as _, Schemas};

/// Adds the schemas of the dialect.
pub(crate) fn describe(schemas: &mut Schemas) {
    request::SpeechRequestBody::schema(schemas);
    answer::describe(schemas);
}
