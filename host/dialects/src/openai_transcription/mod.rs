//! OpenAI's Transcriptions and Translations, as a client dialect: the words of a recording.
//!
//! [`read`] reads a request, which is a form with a file. [`Transcript`] writes the response: JSON, or text with or without
//! timings. [`TranscriptStream`] writes events.

mod answer;
mod request;
#[cfg(test)]
mod tests;

pub use answer::{Transcript, TranscriptStream};
pub use request::{TranscriptionKind, read};

pub use crate::dialect::{TranscriptFormat, TranscriptionForm};
use crate::schema::{Described as _, Schemas};

/// Adds the schemas of the dialect.
pub(crate) fn describe(schemas: &mut Schemas) {
    request::TranscriptionFields::schema(schemas);
    answer::describe(schemas);
}
