//! OpenAI's Chat Completions, as the dialect that a client speaks.
//!
//! [`parse_chat`] turns a request's body into the plugins' vocabulary; [`Completion`] and [`Chunks`] turn the
//! answer's events back, as one `chat.completion` object or as `chat.completion.chunk` events.
//!
//! A field of the request is translated, handed to the adapter as it is (unknown top-level fields), or refused by
//! name. What is accepted and lost is what SDKs send back unasked and what does not change the question: of an earlier
//! answer, what was added for the reader (`annotations`, `parsed`, `index`).
//!
//! **Invariant:** an error names the field and never repeats a value: it may be part of a prompt.
//! **Invariant:** JSON that is handed on unread nests at most 100 levels deep, so that whoever reads it can recurse.
//!
//! To accept another field, add it to its object in `wire` and translate or check it in `request`.

mod answer;
mod request;
#[cfg(test)]
mod tests;
mod wire;

pub use answer::{AnswerHead, Chunks, Completion};
pub use request::{ChatCall, parse_chat};
