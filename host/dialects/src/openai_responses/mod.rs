//! OpenAI's Responses, as a client dialect.
//!
//! [`read`] parses a request's body into the plugins' vocabulary; [`ResponseObject`] and [`ResponseStream`] write the response's events,
//! as one `response` object or as OpenAI's stream events.
//!
//! A response is a list of items. Text and refusals are the content of a message; reasoning and each call are separate
//! items. Clients send items back unchanged, but lose extra fields: data that only a provider can read (signatures,
//! sealed reasoning) is in the `encrypted_content` of a reasoning item, with the provider's name (`proof`). Blocks
//! beyond the vocabulary have no place. The vocabulary knows no namespaces of tools: `tool_names` gives each of their tools
//! one name. An item's id consists of the response's id and the number of its first block,
//! so that clients can refer to the item while the response is stored.
//!
//! **Invariant:** a client that sends a response's items back unchanged returns everything that the model needs: text,
//! refusals, calls, reasoning, and all proofs. **Invariant:** the last event of a stream is `response.completed`,
//! `response.incomplete` or `response.failed`.
//!
//! To accept another field, add it to its object in `wire` and translate it in `request` (settings), `input` or `tools`.

mod answer;
mod chunks;
mod input;
mod items;
mod order;
mod output;
mod request;
#[cfg(test)]
mod tests;
mod tool_list;
mod tools;
mod wire;

use std::borrow::Cow;

pub use answer::ResponseObject;
pub use chunks::{KEEP_ALIVE, ResponseStream};
pub use request::read;
pub(crate) use request::read_for_chat;

pub use crate::dialect::EchoedFields;
use crate::json::renamed;
use crate::schema::{Described as _, Schemas};

/// The dialect's name in the contract.
const NAME: &str = "openai-responses";

/// Returns the dialect's name of a field; other code uses its name in Chat Completions.
pub(super) fn field(name: &str) -> Cow<'_, str> {
    const NAMES: [(&str, &str); 6] = [
        ("messages", "input"),
        ("response_format.json_schema", "text.format"),
        ("response_format", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
        ("verbosity", "text.verbosity"),
        ("session_id", "previous_response_id"),
    ];
    renamed(name, &NAMES)
}

/// Adds the schemas of the dialect.
pub(crate) fn describe(schemas: &mut Schemas) {
    wire::ResponsesRequestBody::schema(schemas);
    answer::describe(schemas);
    chunks::describe(schemas);
}
