//! OpenAI's Images, as a client dialect: images from a prompt, and edits of images.
//!
//! A request is JSON or, with images, a form; [`read`] and [`form::read`] return the same structure. [`ImagesResponse`] and
//! [`ImageStream`] write the response's events: one object with a list of images, or events with previews and the final
//! image.
//!
//! To accept another field, add it to `wire` and check it in `request`. Fields for the adapter pass unchanged.

mod answer;
pub mod form;
mod request;
#[cfg(test)]
mod tests;
mod wire;

pub use answer::{ImageStream, ImagesResponse};
pub use request::read;

pub use crate::dialect::ImageOperation;
use crate::schema::{Described as _, Schemas};

/// The dialect's name in the contract.
const NAME: &str = "openai-images";

/// Adds the schemas of the dialect.
pub(crate) fn describe(schemas: &mut Schemas) {
    wire::ImageRequestBody::schema(schemas);
    answer::describe(schemas);
}
