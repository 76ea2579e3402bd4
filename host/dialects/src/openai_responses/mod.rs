//! OpenAI's Responses, as the dialect that a client speaks.
//!
//! [`read`] turns a request's body into the plugins' vocabulary; [`Whole`] and [`ResponseStream`] turn the answer's events back, as
//! one `response` object or as OpenAI's stream events.
//!
//! An answer is a list of items. Text and refusals are the content of a message, reasoning and each call are items of
//! their own. Clients send items back as they got them, whatever stands beside them is lost: what only a provider can read
//! again (signatures, sealed reasoning) is in the `encrypted_content` of a reasoning item, with the provider's name
//! ([`proof`]). Blocks that the vocabulary has no word for have no place. An item's id is made of the answer's and of the
//! number of its first block, so that clients can refer to it as long as the answer is kept.
//!
//! **Invariant:** a client that sends an answer's items back as it got them sends back all that the model needs of it:
//! text, refusals, calls, reasoning, and whatever proves any of them.
//! **Invariant:** the last event of a stream is `response.completed`, `response.incomplete` or `response.failed`.
//!
//! To accept another field, add it to its object in `wire` and translate it in `request` (settings), `input` or `tools`.

mod answer;
mod chunks;
mod input;
mod items;
mod order;
mod output;
mod proof;
mod request;
#[cfg(test)]
mod tests;
mod tools;
mod wire;

use std::borrow::Cow;
use std::sync::Arc;

pub use answer::Response;
pub use chunks::{KEEP_ALIVE, ResponseStream};
pub use request::read;

/// The dialect's name in the contract.
const NAME: &str = "openai-responses";

/// What an answer's id begins with.
const ID_PREFIX: &str = "resp_";

/// What a client asked for, as its answer repeats it: fields of a JSON object, without its braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Echo(Arc<str>);

/// What the dialect calls a field that everything beyond it knows by its name in Chat Completions.
pub(super) fn field(name: &str) -> Cow<'_, str> {
    const NAMES: [(&str, &str); 6] = [
        ("messages", "input"),
        ("response_format.json_schema", "text.format"),
        ("response_format", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
        ("verbosity", "text.verbosity"),
        ("session_id", "previous_response_id"),
    ];
    for (known, own) in NAMES {
        match name.strip_prefix(known) {
            // Which of its items a message was, nobody knows any more.
            Some(rest) if rest.is_empty() || rest.starts_with('[') => return own.into(),
            Some(rest) if rest.starts_with('.') => return format!("{own}{rest}").into(),
            _ => {}
        }
    }
    name.into()
}
