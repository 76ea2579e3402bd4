//! Dialects: the request and response formats of weir's clients.
//!
//! A dialect parses a request body into a [`ChatCall`], and writes the response: whole ([`PlainResponse`]), as a stream ([`AnswerStream`]), or as an error ([`ErrorFormat`]). Each dialect is a
//! folder:
//!
//! - `openai_chat`: OpenAI's Chat Completions, which weir's own endpoints use, too.
//! - `openai_responses`: OpenAI's Responses.
//! - `openai_completions`: OpenAI's Completions.
//! - `anthropic_messages`: Anthropic's Messages.
//! - `gemini_generate`: Google's `generateContent`.
//!
//! The formats of other kinds of work are in the crate `kinds`, and implement the traits of [`other`].
//!
//! [`json`] has the shared parsing: paths in errors, repeated fields, null as absent. [`schema`] has the schemas of all objects
//! for the OpenAPI document, which come from the declarations of their readers and writers ([`schemas`]).
//!
//! **Invariant:** no other crate knows which dialect a client uses; only the endpoints under `/v1` and
//! `/v1beta` name a vendor.
//! **Invariant:** the chunks of a response add up to the whole response to the same events.
//!
//! To add a dialect: a folder with a reader, a writer and its error words; a variant in [`Dialect`], [`PlainResponse`],
//! [`AnswerStream`] and [`ErrorFormat`]; endpoints in `inference/src/vendors/`.

mod answer;
pub mod anthropic_messages;
mod call;
mod dialect;
mod document;
mod error_format;
pub mod form;
pub mod gemini_generate;
mod head;
pub mod hosted;
pub mod json;
pub mod openai;
pub mod openai_chat;
pub mod openai_completions;
pub mod openai_responses;
mod openai_tools;
pub mod other;
mod own;
mod proof;
pub mod schema;
#[cfg(test)]
mod schema_tests;
mod thought_signature;
mod tool_names;

pub use self::answer::{AnswerStream, PlainResponse};
pub use self::call::{
    Attachment, Attachments, Chain, ChatCall, ConversationNames, PartReference, plain,
    take_end_user,
};
pub use self::dialect::{Dialect, MessageOrigin, StreamForm};
pub use self::document::schemas;
pub use self::error_format::ErrorFormat;
pub use self::head::{AnswerHead, BilledUsage, DataFault};
pub use self::json::ADAPTERS_OWN;
pub use self::own::{read_messages, read_own, write_message};
