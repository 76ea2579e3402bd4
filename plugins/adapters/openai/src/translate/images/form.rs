//! A request for an edit as a form (`multipart/form-data`, RFC 7578), in which the host inserts the images.

use serde_json::Value;
use weir_sdk::adapter::{Attachment, BodyPart, Failure};
use weir_sdk::chat::{Image, ImageRequest, Source};
use weir_sdk::wire::{self, refuse};

/// The boundary of parts, completed by a number. This module ensures that no text of the form contains it; the host,
/// which alone sees the images, ensures that no image does.
const BOUNDARY: &str = "weir-form-9c3e51d0a7b84f26";

/// A form in progress.
pub(super) struct Form {
    boundary: String,
    parts: Vec<BodyPart>,
    /// The bytes before the next attachment.
    text: Vec<u8>,
}

impl Form {
    /// Writes the fields of an object, and the images.
    ///
    /// # Errors
    ///
    /// A field without a plain value, by its name.
    pub(super) fn new(
        fields: &Value,
        image: &ImageRequest,
        attachments: &[Attachment],
    ) -> Result<Self, Failure> {
        let mut form = Self {
            boundary: free_boundary(fields),
            parts: Vec::new(),
            text: Vec::new(),
        };
        for (name, value) in fields.as_object().into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                _ => return Err(refuse(name, name)),
            };
            if !name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            {
                return Err(refuse(name, name));
            }
            form.open(&format!("name=\"{name}\"\r\n\r\n{text}\r\n"));
        }
        let name = match image.inputs.len() {
            1 => "image",
            _ => "image[]",
        };
        for input in &image.inputs {
            form.attach(name, input, attachments)?;
        }
        if let Some(mask) = &image.mask {
            form.attach("mask", mask, attachments)?;
        }
        let end = format!("--{}--\r\n", form.boundary);
        form.text.extend_from_slice(end.as_bytes());
        Ok(form)
    }

    pub(super) fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={}", self.boundary)
    }

    pub(super) fn into_parts(mut self) -> Vec<BodyPart> {
        self.parts.push(BodyPart::Bytes(self.text));
        self.parts
    }

    fn open(&mut self, rest: &str) {
        let head = format!(
            "--{}\r\nContent-Disposition: form-data; {rest}",
            self.boundary
        );
        self.text.extend_from_slice(head.as_bytes());
    }

    fn attach(
        &mut self,
        name: &str,
        image: &Image,
        attachments: &[Attachment],
    ) -> Result<(), Failure> {
        let Source::Attachment(index) = image.source else {
            return Err(refuse(name, format!("{name}: not in the request")));
        };
        let media_type = wire::media_type(attachments, index, None, name)?;
        // Servers derive the file's type from it.
        let ending = media_type.rsplit('/').next().unwrap_or_default();
        self.open(&format!(
            "name=\"{name}\"; filename=\"image.{ending}\"\r\nContent-Type: {media_type}\r\n\r\n"
        ));
        self.parts
            .push(BodyPart::Bytes(std::mem::take(&mut self.text)));
        self.parts.push(BodyPart::Attached(index));
        self.text.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// Returns a boundary that no text of these fields contains.
fn free_boundary(fields: &Value) -> String {
    let is_free = |boundary: &String| {
        let mut values = fields.as_object().into_iter().flatten();
        !values.any(|(_, value)| value.as_str().is_some_and(|text| text.contains(boundary)))
    };
    let mut boundaries = (0..u32::MAX).map(|number| format!("{BOUNDARY}-{number}-"));
    boundaries
        .find(is_free)
        .expect("no text has as many as there are")
}
