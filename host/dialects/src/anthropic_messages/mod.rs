//! Anthropic's Messages, as a client dialect.
//!
//! [`read`] parses a request's body into the plugins' vocabulary; [`MessageResponse`] and [`MessageStream`] write the response's
//! events, as one `message` object or as Anthropic's stream events.
//!
//! Blocks of types beyond the vocabulary (server tools, their results, search results) are opaque, and so are unknown
//! fields: an adapter whose upstream speaks this dialect passes them on unchanged, and any other adapter refuses or
//! names them.
//!
//! Content without an equivalent in the dialect takes the nearest form: an image in a response becomes an `image`
//! block, a refusal becomes text. The field `provider`, on blocks that only their provider can read, is weir's own;
//! clients send blocks back unchanged.
//!
//! **Invariant:** a client that sends a response's content back unchanged returns everything that the model needs:
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

use crate::schema::{Described as _, Schemas};
pub use answer::MessageResponse;
pub use chunks::{KEEP_ALIVE, MessageStream};
pub use request::{read, read_uncounted};

/// The dialect's name in the contract.
pub(crate) const NAME: &str = "anthropic-messages";

/// Adds the schemas of the dialect.
pub(crate) fn describe(schemas: &mut Schemas) {
    wire::MessagesRequestBody::schema(schemas);
    chunks::describe(schemas);
}
