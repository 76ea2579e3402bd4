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

use serde_json::{Map, Value, json};
use weir_dialects::form::{as_form, file_schema};
use weir_dialects::other::{PlainWriter, ResponseFormat, StreamWriter};
use weir_dialects::schema::{Described as _, Schemas, described, without};
use weir_dialects::{AnswerHead, Attachment, Dialect};
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::ImageRequest;

pub use self::answer::{ImageStream, ImagesResponse};
pub use self::request::read;

/// The dialect's name in the contract.
const NAME: &str = "openai-images";

/// A request for images.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageCall {
    /// The request in the plugins' vocabulary. `model` is the client's name.
    pub request: ImageRequest,
    /// The bytes of the request's images, by index.
    pub attachments: Vec<Attachment>,
    /// The bytes of the body.
    pub body_bytes: usize,
    /// The client, as far as an upstream needs it.
    pub client: Client,
    /// The dialect of the response.
    pub dialect: Dialect,
}

/// The kind of an image request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageOperation {
    /// Images from a prompt.
    Generation,
    /// Images from other images.
    Edit,
}

impl ImageCall {
    /// Returns the approximate bytes that an adapter receives.
    pub fn text_bytes(&self) -> usize {
        let extra = self.request.extra.iter();
        let extra = extra.map(|(name, json)| name.len() + json.len());
        self.request.prompt.len() + extra.sum::<usize>()
    }
}

impl ResponseFormat for ImageOperation {
    fn plain(&self, head: AnswerHead) -> Box<dyn PlainWriter> {
        Box::new(ImagesResponse::new(&head))
    }

    fn stream(&self, head: AnswerHead) -> Box<dyn StreamWriter> {
        Box::new(ImageStream::new(&head, *self))
    }
}

/// Adds the schemas of the kind.
pub(crate) fn describe(schemas: &mut Schemas) {
    wire::ImageRequestBody::schema(schemas);
    answer::describe(schemas);
}

/// Adds the schemas of a request without images, and of a form, which have the reader of edits.
pub(crate) fn add_variants(schemas: &mut Map<String, Value>) {
    let edit = &schemas["ImageEditRequest"];
    let made = without(edit, &["images"], &["images", "mask"]);
    let mut made = described(
        made,
        "A request in OpenAI's Images. Fields that weir does not know go on to the provider.",
    );
    made["required"] = json!(["model", "prompt"]);
    let mut form = as_form(&without(edit, &["images"], &["images"]));
    form["properties"]["image"] =
        file_schema("The source image. A list of images has the name `image[]`.");
    form["properties"]["mask"] =
        file_schema("An image whose transparent parts mark what the model may change.");
    form["required"] = json!(["model", "prompt", "image"]);
    let form = described(
        form,
        "A request that edits an image, as a form. Fields that weir does not know go on to the provider.",
    );
    schemas.insert("ImageRequest".to_owned(), made);
    schemas.insert("ImageEditForm".to_owned(), form);
}
