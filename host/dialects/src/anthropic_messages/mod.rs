//! Anthropic's Messages, as the dialect that a client speaks.
//!
//! [`read`] turns a request's body into the plugins' vocabulary; [`Message`] and [`MessageStream`] turn the answer's events
//! back, as one `message` object or as Anthropic's stream events.
//!
//! A block of a type that the vocabulary has no word for (server tools, their results, search results) is opaque, and so
//! are fields beyond those known here: an adapter whose upstream speaks this dialect passes them on as they came, any
//! other refuses or names them.
//!
//! What the dialect has no place for is written as its nearest: an image in an answer as an `image` block, a refusal as
//! text. `provider` beside a block that only its provider can read again is weir's own; clients send blocks back as they
//! got them.
//!
//! **Invariant:** a client that sends an answer's content back as it got it sends back all that the model needs of it:
//! text, calls, reasoning with its signature or sealed form, opaque blocks.
//!
//! To accept another field, add it to its object in `wire` and translate it in `request` (settings), `content`
//! or `tools`.

mod answer;
mod blocks;
mod chunks;
mod content;
pub(crate) mod errors;
mod request;
#[cfg(test)]
mod tests;
mod tools;
mod wire;

pub use answer::Message;
pub use chunks::{KEEP_ALIVE, MessageStream};
pub use request::{read, read_uncounted};

/// The dialect's name in the contract.
const NAME: &str = "anthropic-messages";
