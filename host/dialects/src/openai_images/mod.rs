//! OpenAI's Images, as the dialect that a client speaks: images made from a prompt, and made of others.
//!
//! A request comes as JSON or, with images, as a form; [`read`] and [`form::read`] read both alike. [`Answer`] and
//! [`ImageStream`] write the answer's events: as one object with a list of images, or as events, previews and then the image.
//!
//! To accept another field, add it to `wire` and check it in `request`. Fields that are the adapter's to decide about go
//! to it as they are.

mod answer;
pub mod form;
mod request;
#[cfg(test)]
mod tests;
mod wire;

pub use answer::{Answer, ImageStream};
pub use request::read;

/// The dialect's name in the contract.
const NAME: &str = "openai-images";

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// Images of a prompt.
    Generation,
    /// Images of other images.
    Edit,
}
