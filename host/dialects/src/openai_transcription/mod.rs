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

/// The dialect's name in the contract.
const NAME: &str = "openai-transcription";
