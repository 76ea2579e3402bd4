//! OpenAI's Chat Completions, as a client dialect.
//!
//! [`read`] parses a request's body into the plugins' vocabulary; [`Completion`] and [`CompletionStream`] write the response's
//! events, as one `chat.completion` object or as `chat.completion.chunk` events.
//!
//! A field of the request is translated, passed to the adapter unchanged (unknown fields of the body, of messages,
//! parts and tools), or refused by name. Only fields without influence on the response are dropped: SDKs send them back
//! from earlier responses (`annotations`, `parsed`, `index`).
//!
//! weir supports other gateways' extensions of the dialect: `reasoning_content` (DeepSeek), `reasoning_details` and
//! `images` (OpenRouter), `provider_specific_fields` (LiteLLM).
//!
//! **Invariant:** a client that sends a response's message back unchanged returns everything that the model needs:
//! text, refusals, calls, images, reasoning with its signature or sealed form, opaque blocks.
//!
//! To accept another field, add it to its object in `wire` and translate or check it in `request` (settings), `messages`
//! or `tools`.

mod answer;
#[cfg(test)]
mod answer_tests;
mod blocks;
mod chunks;
pub(super) mod errors;
mod history;
mod messages;
mod request;
#[cfg(test)]
mod tests;
mod tools;
mod wire;

pub(crate) use answer::ChatUsage;
pub use answer::Completion;
pub use answer::{data_event, json};
pub use chunks::{CompletionStream, KEEP_ALIVE};
pub use history::write_message;
pub use request::read;

pub use crate::dialect::Preferences;
use crate::schema::{Described as _, Schemas};

/// The dialect's name in the contract.
const NAME: &str = "openai-chat";

/// Adds the schemas of the dialect.
pub(crate) fn describe(schemas: &mut Schemas) {
    wire::ChatRequestBody::schema(schemas);
    answer::describe(schemas);
    chunks::describe(schemas);
}
