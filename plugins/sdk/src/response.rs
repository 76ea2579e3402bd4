//! What a response turns out to be, before its bytes mean anything.

use std::borrow::Cow;

use crate::adapter::{Failure, HttpResponseHead};
use crate::failure::{self, MAX_ERROR_BODY_BYTES};

/// The most that is taken of an answer that is not streamed, in bytes: 30 times what a model writes
/// in 32,000 tokens, and little enough to be parsed within a guest's memory.
pub const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// An answer that is read when all of it is there.
#[derive(Debug, Default)]
pub struct Whole(Vec<u8>);

impl Whole {
    /// Takes the next bytes.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Malformed`](crate::adapter::FailureKind::Malformed) when the answer exceeds
    /// [`MAX_ANSWER_BYTES`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.0.len() + bytes.len() > MAX_ANSWER_BYTES {
            return Err(Failure::malformed(format!(
                "the answer exceeds {MAX_ANSWER_BYTES} bytes"
            )));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// All of it, with what is not UTF-8 replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

/// A response that is no answer: its head, and what is kept of its body.
#[derive(Debug)]
pub struct Refused {
    /// Its status and headers.
    pub head: HttpResponseHead,
    body: Vec<u8>,
}

impl Refused {
    /// Of a response that begins so.
    pub fn new(head: HttpResponseHead) -> Self {
        let body = Vec::new();
        Self { head, body }
    }

    /// Takes the next bytes, of which it keeps [`MAX_ERROR_BODY_BYTES`].
    pub fn push(&mut self, bytes: &[u8]) {
        let room = MAX_ERROR_BODY_BYTES - self.body.len();
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// What was kept, with what is not UTF-8 replaced, and without the framing of a stream that it came in.
    pub fn text(&self) -> Cow<'_, str> {
        match String::from_utf8_lossy(&self.body) {
            Cow::Borrowed(text) => Cow::Borrowed(unframed(text)),
            Cow::Owned(text) => Cow::Owned(unframed(&text).to_owned()),
        }
    }
}

/// What a body is by the looks of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// An object or a list.
    Json,
    /// Server-sent events.
    Events,
    /// Neither of the two.
    Else,
}

/// Guesses what a body is by how it begins, of which one byte that is no white space is enough. Some servers label an
/// error or a whole answer as the stream that was asked for, or a stream as JSON.
#[derive(Debug, Default)]
pub struct Guess(bool);

impl Guess {
    /// The guess, once: at the first bytes that show it.
    pub fn guess(&mut self, bytes: &[u8]) -> Option<Looks> {
        if self.0 {
            return None;
        }
        let first = bytes.trim_ascii_start().first()?;
        self.0 = true;
        Some(match first {
            b'{' | b'[' => Looks::Json,
            // `data`, `event`, `id`, `retry`, and a comment.
            b'd' | b'e' | b'i' | b'r' | b':' => Looks::Events,
            _ => Looks::Else,
        })
    }
}

/// The data of the first event, of what is framed as events: some servers frame a refusal as they would the answer.
pub fn unframed(text: &str) -> &str {
    if !text.starts_with("data:") && !text.starts_with("event:") {
        return text;
    }
    let data = text.lines().find_map(|line| line.strip_prefix("data:"));
    data.map_or(text, str::trim)
}

/// The media type of a response, in lower case; empty if there is none.
pub fn content_type(head: &HttpResponseHead) -> String {
    failure::header(&head.headers, "content-type")
        .unwrap_or_default()
        .to_ascii_lowercase()
}

/// The failure of a successful response that is a page for people, such as a login page or that of
/// a proxy in between.
pub fn html() -> Failure {
    Failure::malformed("the upstream answered with HTML; is its base URL right?")
}

/// The failure of a stream that was cut.
pub fn cut() -> Failure {
    Failure::malformed("the stream ended before the answer did")
}

/// The failure of an answer that is not what it should be. It says where, not what: the text around
/// it may be a user's.
pub fn unreadable(what: &str, error: &serde_json::Error) -> Failure {
    Failure::malformed(format!(
        "the answer is not {what} ({:?} error at line {} column {})",
        error.classify(),
        error.line(),
        error.column()
    ))
}
