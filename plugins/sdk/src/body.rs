//! A request's body as JSON, with places where the host puts attachments, and long texts.
//!
//! An attachment never enters the guest, so a body is cut where one belongs. Texts can't forge such
//! a place: it is known by how many bytes were written before it, not by what stands there.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::{self, Display};
use std::io;

use serde::{Serialize, Serializer};

use crate::adapter::BodyPart;
use crate::chat::{ChatRequest, Content, ToolContent, ToolKind};
use crate::long_texts;

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
    /// The body so far.
    body: RefCell<Vec<u8>>,
    /// Each string of these splices, by the bytes before its closing quote.
    places: RefCell<Vec<(usize, Splice)>>,
}

#[derive(Debug, Clone, Copy)]
enum Splice {
    /// The attachment of this index belongs here.
    Attachment(u32),
    /// A text is already in the body.
    Text,
    /// The text of this index, which stays with the host, belongs here.
    HostText(u32),
}

/// A text as a JSON string, escaped eight bytes at a time. `serde_json` looks at each byte, which is most of the work for
/// a long prompt. The host writes a text that stays with it.
#[derive(Debug, Clone)]
pub struct Text<'a> {
    splices: &'a Splices,
    pieces: Pieces<'a>,
}

/// The pieces of a text, one after another.
#[derive(Debug, Clone)]
enum Pieces<'a> {
    One(Cow<'a, str>),
    Many(Vec<Cow<'a, str>>),
}

impl<'a> Pieces<'a> {
    fn as_slice(&self) -> &[Cow<'a, str>] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Many(pieces) => pieces,
        }
    }
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

    /// A string that is this text.
    pub fn text<'a>(&'a self, text: impl Into<Cow<'a, str>>) -> Text<'a> {
        Text {
            splices: self,
            pieces: Pieces::One(text.into()),
        }
    }

    /// A string that is these texts, with a separator between them.
    pub fn joined<'a>(&'a self, texts: &[&'a str], separator: &'a str) -> Text<'a> {
        let mut pieces = Vec::with_capacity(texts.len() * 2);
        for text in texts {
            if !pieces.is_empty() {
                pieces.push(Cow::Borrowed(separator));
            }
            pieces.push(Cow::Borrowed(*text));
        }
        Text {
            splices: self,
            pieces: Pieces::Many(pieces),
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
        self.body.replace(Vec::with_capacity(capacity_bytes));
        self.places.borrow_mut().clear();
        serde_json::to_writer(BodyWriter(&self.body), value)?;
        Ok(cut(self.body.take(), &self.places.borrow()))
    }
}

fn cut(body: Vec<u8>, places: &[(usize, Splice)]) -> Vec<BodyPart> {
    let mut parts = Vec::new();
    let mut cut_bytes = 0;
    for &(before_bytes, splice) in places {
        let (before, after) = body.split_at(before_bytes);
        let part = match splice {
            Splice::HostText(text) => BodyPart::Attached(text),
            Splice::Attachment(_) | Splice::Text if !after.starts_with(b"\"") => {
                panic!("a splice's string was buffered")
            }
            Splice::Attachment(attachment) => {
                assert!(
                    before.ends_with(b"base64,") || before.ends_with(b"\""),
                    "an attachment's string was buffered"
                );
                BodyPart::Base64Of(attachment)
            }
            Splice::Text => continue,
        };
        if cut_bytes < before_bytes {
            parts.push(BodyPart::Bytes(before[cut_bytes..].to_vec()));
        }
        parts.push(part);
        cut_bytes = before_bytes;
    }
    parts.push(BodyPart::Bytes(match cut_bytes {
        0 => body,
        _ => body[cut_bytes..].to_vec(),
    }));
    parts
}

impl Text<'_> {
    /// The same text between two others.
    #[must_use]
    pub fn between(self, before: &str, after: &str) -> Self {
        let inner = self.pieces.as_slice().iter().cloned();
        let mut pieces = vec![Cow::Owned(before.to_owned())];
        pieces.extend(inner);
        pieces.push(Cow::Owned(after.to_owned()));
        Self {
            splices: self.splices,
            pieces: Pieces::Many(pieces),
        }
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A splice costs more than the escapes of a short text.
        match &self.pieces {
            Pieces::One(text) if text.len() < 64 && !long_texts::is_placeholder(text) => {
                serializer.serialize_str(text)
            }
            _ => serializer.collect_str(self),
        }
    }
}

impl Display for Text<'_> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut body = self.splices.body.borrow_mut();
        let mut places = self.splices.places.borrow_mut();
        assert!(body.ends_with(b"\""), "a splice's string was buffered");
        for piece in self.pieces.as_slice() {
            match long_texts::index_in_body(piece) {
                Some(index) => places.push((body.len(), Splice::HostText(index))),
                None => escape(piece, &mut body),
            }
        }
        places.push((body.len(), Splice::Text));
        Ok(())
    }
}

/// Appends a text as the content of a JSON string.
fn escape(text: &str, body: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    loop {
        let (plain, after) = rest.split_at(plain_bytes(rest));
        body.extend_from_slice(plain);
        let Some((&byte, after)) = after.split_first() else {
            return;
        };
        match byte {
            b'"' => body.extend_from_slice(b"\\\""),
            b'\\' => body.extend_from_slice(b"\\\\"),
            b'\n' => body.extend_from_slice(b"\\n"),
            b'\x08' => body.extend_from_slice(b"\\b"),
            b'\x0c' => body.extend_from_slice(b"\\f"),
            b'\r' => body.extend_from_slice(b"\\r"),
            b'\t' => body.extend_from_slice(b"\\t"),
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let digits = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                body.extend_from_slice(b"\\u00");
                body.extend_from_slice(&digits);
            }
        }
        rest = after;
    }
}

/// Returns the number of bytes before the first one that JSON escapes.
fn plain_bytes(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    // The high bit of a byte is set if the byte is zero, or follows such a byte.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let (words, tail) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let controls = word.wrapping_sub(ONES * 0x20) & !word;
        let quotes = zeros(word ^ (ONES * u64::from(b'"')));
        let backslashes = zeros(word ^ (ONES * u64::from(b'\\')));
        let found = (controls | quotes | backslashes) & HIGH;
        if found != 0 {
            return index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let is_escaped = |byte: &u8| matches!(byte, 0..0x20 | b'"' | b'\\');
    let plain = tail.iter().position(is_escaped);
    text.len() - tail.len() + plain.unwrap_or(tail.len())
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
        let place = Splice::Attachment(self.attachment);
        let before_bytes = self.splices.body.borrow().len();
        self.splices.places.borrow_mut().push((before_bytes, place));
        Ok(())
    }
}

/// Writes to a body that splices can see.
struct BodyWriter<'a>(&'a RefCell<Vec<u8>>);

impl io::Write for BodyWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    // serde_json calls this for every few bytes.
    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().extend_from_slice(bytes);
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

    /// A value that is written into a buffer first.
    struct Buffered<T>(T);

    impl<T: Serialize> Serialize for Buffered<T> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serde_json::to_value(&self.0)
                .expect("a string")
                .serialize(serializer)
        }
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
    fn escapes_texts_as_serde_json_does() {
        let texts = [
            "a".repeat(200),
            (0..=127u8).map(char::from).collect(),
            "\u{80}é€𝄞\u{1f}\u{7f}".repeat(20),
            (0..100).map(|at| ["\"", "\\", "\n", "x"][at % 4]).collect(),
        ];
        for text in &texts {
            for from in (0..9).filter(|from| text.is_char_boundary(*from)) {
                let splices = Splices::default();
                let body = splices.write(&[splices.text(&text[from..])], 0);
                let expected = serde_json::to_vec(&[&text[from..]]).expect("JSON");
                assert_eq!(body.expect("JSON"), [BodyPart::Bytes(expected)]);
            }
        }
    }

    #[test]
    fn writes_texts_between_attachments() {
        let splices = Splices::default();
        let long = "long ".repeat(20);
        let body = (
            splices.text(&long),
            splices.base64(3),
            splices.text("short").between("<", ">"),
            splices.text(&long),
        );
        let body = splices.write(&body, 0).expect("JSON");
        let expected = format!(r#"["{long}","<3>","<short>","{long}"]"#);
        assert_eq!(joined(&body), (expected, 3));
    }

    #[test]
    #[should_panic(expected = "buffered")]
    fn notices_a_text_that_was_buffered() {
        let splices = Splices::default();
        let _ = splices.write(&[Buffered(splices.text("long ".repeat(20)))], 0);
    }

    #[test]
    #[should_panic(expected = "buffered")]
    fn notices_a_string_that_was_buffered() {
        let splices = Splices::default();
        let _ = splices.write(&[Buffered(splices.base64(0))], 0);
    }
}
