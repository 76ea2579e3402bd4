//! A request's body as JSON, with places where the host puts attachments.
//!
//! An attachment never enters the guest, so a body is cut where one belongs. Texts can't forge such
//! a place: it is known by how many bytes were written before it, not by what stands there.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Display};
use std::io;

use serde::{Serialize, Serializer};

use crate::adapter::BodyPart;
use crate::chat::{ChatRequest, Content, ToolContent, ToolKind};

/// The places of attachments in a body that is being written.
///
/// ```
/// # use serde::Serialize;
/// # use weir_sdk::adapter::BodyPart;
/// # use weir_sdk::body::{Base64, Splices};
/// #[derive(Serialize)]
/// struct Body<'a> {
///     image: Base64<'a>,
/// }
/// let splices = Splices::default();
/// let image = splices.data_url("image/png", 7);
/// let body = splices.write(&Body { image }, 64)?;
/// assert_eq!(
///     body,
///     [
///         BodyPart::Bytes(br#"{"image":"data:image/png;base64,"#.to_vec()),
///         BodyPart::Base64Of(7),
///         BodyPart::Bytes(br#""}"#.to_vec()),
///     ]
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Splices {
    written_bytes: Cell<usize>,
    /// Each place by the bytes before it, and the index of its attachment.
    places: RefCell<Vec<(usize, u32)>>,
}

/// A JSON string that ends with an attachment in base64.
#[derive(Debug, Clone, Copy)]
pub struct Base64<'a> {
    splices: &'a Splices,
    /// Makes a data URL of it.
    media_type: Option<&'a str>,
    attachment: u32,
}

impl Splices {
    /// A string that is this attachment in base64.
    pub fn base64(&self, attachment: u32) -> Base64<'_> {
        Base64 {
            splices: self,
            media_type: None,
            attachment,
        }
    }

    /// A string that is this attachment as a `data:` URL.
    pub fn data_url<'a>(&'a self, media_type: &'a str, attachment: u32) -> Base64<'a> {
        Base64 {
            splices: self,
            media_type: Some(media_type),
            attachment,
        }
    }

    /// Writes a body in which strings of these splices may stand. `capacity_bytes` is its likely
    /// size, attachments apart.
    ///
    /// # Errors
    ///
    /// Errors of the value's own `Serialize`.
    ///
    /// # Panics
    ///
    /// If the value has some of itself written into a buffer first (`serde_json::to_value` and its
    /// like) and such a string stands in that: then its place is unknown.
    pub fn write(
        &self,
        value: &impl Serialize,
        capacity_bytes: usize,
    ) -> serde_json::Result<Vec<BodyPart>> {
        self.written_bytes.set(0);
        self.places.borrow_mut().clear();
        let mut body = CountedBytes {
            bytes: Vec::with_capacity(capacity_bytes),
            written_bytes: &self.written_bytes,
        };
        serde_json::to_writer(&mut body, value)?;
        Ok(cut(body.bytes, &self.places.borrow()))
    }
}

fn cut(body: Vec<u8>, places: &[(usize, u32)]) -> Vec<BodyPart> {
    if places.is_empty() {
        return vec![BodyPart::Bytes(body)];
    }
    let mut parts = Vec::with_capacity(2 * places.len() + 1);
    let mut rest = &body[..];
    let mut cut_bytes = 0;
    for &(before_bytes, attachment) in places {
        let (before, after) = rest.split_at(before_bytes - cut_bytes);
        assert!(
            before.ends_with(b"base64,") || before.ends_with(b"\""),
            "an attachment's string was buffered"
        );
        assert!(
            after.starts_with(b"\""),
            "an attachment's string was buffered"
        );
        parts.push(BodyPart::Bytes(before.to_vec()));
        parts.push(BodyPart::Base64Of(attachment));
        (rest, cut_bytes) = (after, before_bytes);
    }
    parts.push(BodyPart::Bytes(rest.to_vec()));
    parts
}

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Each piece that `fmt` writes goes straight to the body, so that the count is right
        // before the closing quote.
        serializer.collect_str(self)
    }
}

impl Display for Base64<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(media_type) = self.media_type {
            write!(formatter, "data:{media_type};base64,")?;
        }
        let place = (self.splices.written_bytes.get(), self.attachment);
        self.splices.places.borrow_mut().push(place);
        Ok(())
    }
}

/// Bytes whose number others can see.
struct CountedBytes<'a> {
    bytes: Vec<u8>,
    written_bytes: &'a Cell<usize>,
}

impl io::Write for CountedBytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    // serde_json calls this for every few bytes.
    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        self.written_bytes.set(self.bytes.len());
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Roughly how many bytes a request's body has, rather above than below: a buffer that grows holds
/// its content twice. The bytes of attachments are not among them.
pub fn estimated_bytes(chat: &ChatRequest) -> usize {
    let part = |content: &Content| match content {
        // A little more for what is escaped: line ends and quotes.
        Content::Text(text) | Content::Refusal(text) => text.len() + text.len() / 16,
        Content::Reasoning(reasoning) => reasoning.text.len(),
        // Arguments are JSON in a JSON string: every quote is escaped.
        Content::ToolCall(call) => call.arguments.len() + call.arguments.len() / 4,
        Content::ToolResult(result) => result
            .content
            .iter()
            .map(|content| match content {
                ToolContent::Text(text) => text.len() + text.len() / 8,
                ToolContent::Opaque(opaque) => opaque.json.len(),
                ToolContent::Image(_) | ToolContent::File(_) => 0,
            })
            .sum(),
        Content::Opaque(opaque) => opaque.json.len(),
        // A URL or an id, or a place that the host fills.
        Content::Image(_) | Content::Audio(_) | Content::File(_) => 256,
    };
    let messages: usize = chat
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .map(|content| part(&content.content) + 128)
        .sum();
    let tools: usize = chat
        .tools
        .iter()
        .map(|tool| match &tool.kind {
            ToolKind::Function(function) => {
                function.input_schema.len() + function.description.as_ref().map_or(0, String::len)
            }
            ToolKind::Custom(custom) => custom.description.as_ref().map_or(0, String::len) + 256,
            ToolKind::BuiltIn(tool) => tool.configuration.len(),
        })
        .map(|bytes| bytes + 128)
        .sum();
    messages + tools + 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body with `<n>` for attachment `n`, and how many parts it has.
    fn joined(parts: &[BodyPart]) -> (String, usize) {
        let texts = parts.iter().map(|part| match part {
            BodyPart::Bytes(bytes) => String::from_utf8(bytes.clone()).expect("UTF-8"),
            BodyPart::Base64Of(attachment) => format!("<{attachment}>"),
            BodyPart::Attached(_) => panic!("nothing is attached as it is"),
        });
        (texts.collect(), parts.len())
    }

    #[test]
    fn is_one_piece_without_attachments() {
        let body = Splices::default()
            .write(&["a", "\"<0>\""], 0)
            .expect("JSON");
        assert_eq!(body, [BodyPart::Bytes(br#"["a","\"<0>\""]"#.to_vec())]);
    }

    #[test]
    fn puts_each_attachment_where_its_string_ends() {
        let splices = Splices::default();
        let body = [
            splices.data_url("image/png", 2),
            splices.base64(0),
            splices.data_url("a/\"b\"\\\n", 2),
        ];
        let body = splices.write(&body, 0).expect("JSON");
        assert_eq!(
            joined(&body),
            (
                r#"["data:image/png;base64,<2>","<0>","data:a/\"b\"\\\n;base64,<2>"]"#.to_owned(),
                7
            )
        );
    }

    #[test]
    fn takes_no_text_for_an_attachment() {
        let splices = Splices::default();
        let text = "data:image/png;base64,";
        let body = (text, splices.data_url("image/png", 0), text, "é\u{1}\"", "");
        let body = splices.write(&body, 0).expect("JSON");
        assert_eq!(
            joined(&body),
            (
                r#"["data:image/png;base64,","data:image/png;base64,<0>","data:image/png;base64,","é\u0001\"",""]"#
                    .to_owned(),
                3
            )
        );
    }

    #[test]
    fn forgets_the_places_of_an_earlier_body() {
        let splices = Splices::default();
        let first = splices.write(&[splices.base64(0)], 0).expect("JSON");
        assert_eq!(splices.write(&[splices.base64(0)], 0).expect("JSON"), first);
    }

    #[test]
    #[should_panic(expected = "buffered")]
    fn notices_a_string_that_was_buffered() {
        struct Buffered<'a>(Base64<'a>);

        impl Serialize for Buffered<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde_json::to_value(self.0)
                    .expect("a string")
                    .serialize(serializer)
            }
        }
        let splices = Splices::default();
        let _ = splices.write(&[Buffered(splices.base64(0))], 0);
    }
}
