//! OpenAI's Chat Completions, as the dialect that a client speaks.
//!
//! [`read`] turns a request's body into the plugins' vocabulary; [`Completion`] and [`CompletionStream`] turn the
//! answer's events back, as one `chat.completion` object or as `chat.completion.chunk` events.
//!
//! A field of the request is translated, handed to the adapter as it is (unknown fields of the body, of messages, parts
//! and tools), or refused by name. What is accepted and lost is what SDKs send back unasked and what does not change
//! the question: of an earlier answer, what was added for the reader (`annotations`, `parsed`, `index`).
//!
//! What other gateways add to the dialect is spoken as they do: `reasoning_content` (DeepSeek), `reasoning_details` and
//! `images` (OpenRouter), `provider_specific_fields` (LiteLLM).
//!
//! **Invariant:** a client that sends an answer's message back as it got it sends back all that the model needs of it:
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

pub use answer::Completion;
pub use chunks::{CompletionStream, KEEP_ALIVE};
pub use history::write_message;
pub use request::read;

/// The dialect's name in the contract.
const NAME: &str = "openai-chat";

/// How a client wants to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preferences {
    /// Whether a streamed answer ends with a chunk of its own for usage.
    pub include_usage: bool,
}
