//! A request as a form (`multipart/form-data`, RFC 7578), in which the host inserts the files.

use std::borrow::Cow;

use weir_sdk::adapter::{BodyPart, Failure, HttpRequest};
use weir_sdk::wire::refuse;

/// The boundary of parts, completed by a number. This module ensures that no text of the form contains it; the host,
/// which alone sees the files, ensures that no file does.
const BOUNDARY: &str = "weir-form-9c3e51d0a7b84f26";

pub(super) struct Form {
    boundary: String,
    parts: Vec<BodyPart>,
    /// The bytes before the next attachment.
    text: Vec<u8>,
}

/// A file of a form.
pub(super) struct FormFile<'a> {
    /// The name of the field.
    pub(super) field: &'a str,
    /// Servers derive the file's type from its ending. It must be free of quotes and control characters.
    pub(super) name: &'a str,
    pub(super) media_type: &'a str,
    pub(super) index: u32,
}

impl Form {
    /// Writes fields with these names and texts.
    ///
    /// # Errors
    ///
    /// A name that a form cannot have.
    pub(super) fn new(fields: &[(Cow<'_, str>, String)]) -> Result<Self, Failure> {
        let mut form = Self {
            boundary: free_boundary(fields),
            parts: Vec::new(),
            text: Vec::new(),
        };
        for (name, text) in fields {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_[]".contains(&byte);
            if !name.bytes().all(is_plain) {
                return Err(refuse(name, &**name));
            }
            form.open(&format!("name=\"{name}\"\r\n\r\n{text}\r\n"));
        }
        Ok(form)
    }

    pub(super) fn attach(&mut self, file: &FormFile<'_>) {
        self.open(&format!(
            "name=\"{}\"; filename=\"{}\"\r\nContent-Type: {}\r\n\r\n",
            file.field, file.name, file.media_type
        ));
        self.parts
            .push(BodyPart::Bytes(std::mem::take(&mut self.text)));
        self.parts.push(BodyPart::Attached(file.index));
        self.text.extend_from_slice(b"\r\n");
    }

    pub(super) fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={}", self.boundary)
    }

    pub(super) fn into_parts(mut self) -> Vec<BodyPart> {
        let end = format!("--{}--\r\n", self.boundary);
        self.text.extend_from_slice(end.as_bytes());
        self.parts.push(BodyPart::Bytes(self.text));
        self.parts
    }

    pub(super) fn post(self, path: String) -> HttpRequest {
        HttpRequest {
            method: "POST".to_owned(),
            path,
            headers: vec![("content-type".to_owned(), self.content_type())],
            body: self.into_parts(),
        }
    }

    fn open(&mut self, rest: &str) {
        let head = format!(
            "--{}\r\nContent-Disposition: form-data; {rest}",
            self.boundary
        );
        self.text.extend_from_slice(head.as_bytes());
    }
}

/// Returns a boundary that no text of these fields contains.
fn free_boundary(fields: &[(Cow<'_, str>, String)]) -> String {
    let is_free = |boundary: &String| {
        !fields
            .iter()
            .any(|(_, text)| text.contains(boundary.as_str()))
    };
    let mut boundaries = (0..u32::MAX).map(|number| format!("{BOUNDARY}-{number}-"));
    boundaries
        .find(is_free)
        .expect("no text has as many as there are")
}
