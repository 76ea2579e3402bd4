//! Dialects: the request and response formats of weir's clients.
//!
//! A dialect parses a request body into a [`ChatCall`], an [`ImageCall`], a [`RetrievalCall`] or an [`AudioCall`], and writes
//! the response: whole ([`PlainResponse`]), as a stream ([`AnswerStream`]), or as an error ([`ErrorFormat`]). Each dialect is a
//! folder:
//!
//! - `openai_chat`: OpenAI's Chat Completions, which weir's own endpoints use, too.
//! - `openai_responses`: OpenAI's Responses.
//! - `openai_completions`: OpenAI's Completions.
//! - `openai_images`: OpenAI's Images.
//! - `openai_embeddings`: OpenAI's Embeddings.
//! - `openai_moderation`: OpenAI's Moderations.
//! - `openai_speech`: OpenAI's Speech.
//! - `openai_transcription`: OpenAI's Transcriptions and Translations.
//! - `rerank`: Cohere's Rerank.
//! - `anthropic_messages`: Anthropic's Messages.
//! - `gemini_generate`: Google's `generateContent`.
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
mod form;
pub mod gemini_generate;
mod head;
pub mod hosted;
pub(crate) mod json;
pub(crate) mod openai;
pub mod openai_chat;
pub mod openai_completions;
pub mod openai_embeddings;
pub mod openai_images;
pub mod openai_moderation;
pub mod openai_responses;
pub mod openai_speech;
mod openai_tools;
pub mod openai_transcription;
mod own;
mod proof;
pub mod rerank;
mod schema;
#[cfg(test)]
mod schema_tests;
mod thought_signature;
mod tool_names;

pub use self::answer::{AnswerStream, PlainResponse};
pub(crate) use self::call::Attachments;
pub use self::call::{
    Attachment, AudioCall, AudioTask, Chain, ChatCall, ClientCall, ConversationNames, ImageCall,
    PartReference, RetrievalCall, RetrievalTask, ScreenedFields, plain, take_end_user,
};
pub use self::dialect::{Dialect, MessageOrigin, StreamForm};
pub use self::document::schemas;
pub use self::error_format::ErrorFormat;
pub use self::head::{AnswerHead, BilledUsage, DataFault};
pub use self::json::ADAPTERS_OWN;
pub use self::own::{read_any, read_messages, read_own, write_message};
