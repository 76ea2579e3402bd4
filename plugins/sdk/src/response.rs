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

    /// What was kept, with what is not UTF-8 replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
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
