//! Responses of other kinds of work than chats: their formats are outside of this crate, and implement these traits.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use weir_sandbox::adapter::bindings::chat::Event;

use crate::head::{AnswerHead, BilledUsage, DataFault};
use crate::openai_chat;

/// The format of a response, with the client's preferences.
pub trait ResponseFormat: fmt::Debug + Send + Sync {
    /// Starts a plain response.
    ///
    /// # Panics
    ///
    /// If the format has only streams.
    fn plain(&self, head: AnswerHead) -> Box<dyn PlainWriter>;

    /// Starts a stream.
    ///
    /// # Panics
    ///
    /// If the format has no streams.
    fn stream(&self, _head: AnswerHead) -> Box<dyn StreamWriter> {
        unreachable!("no request in this format asks for a stream")
    }

    /// Returns the media type of a plain response.
    fn plain_type(&self) -> &'static str {
        "application/json"
    }

    /// Returns the media type of a stream.
    fn stream_type(&self) -> &'static str {
        "text/event-stream"
    }

    /// Returns the keep-alive data of a silent stream; empty if it has no place for them.
    fn keep_alive(&self) -> Bytes {
        openai_chat::KEEP_ALIVE
    }

    /// Whether a stream passes on the pieces of a recording as they arrive.
    fn streams_media(&self) -> bool {
        false
    }
}

/// Writes a plain response.
pub trait PlainWriter: ClonedWriter + fmt::Debug + Send + Sync {
    /// Adds an event.
    fn push(&mut self, event: &Event);

    /// Discards an attempt without output.
    fn clear(&mut self);

    /// Checks that the response is complete and valid.
    ///
    /// # Errors
    ///
    /// The fault of the upstream.
    fn check(&self) -> Result<(), DataFault> {
        Ok(())
    }

    /// Whether the upstream has sent more items than the request asked for. The body lacks them.
    fn has_surplus(&self) -> bool {
        false
    }

    /// Returns the body of the response.
    fn into_body(self: Box<Self>, billed: &BilledUsage) -> Vec<u8>;
}

/// Copies a writer: the response is written to the client and stored with its `Idempotency-Key`.
pub trait ClonedWriter {
    /// Returns a copy.
    fn cloned(&self) -> Box<dyn PlainWriter>;
}

impl<W: PlainWriter + Clone + 'static> ClonedWriter for W {
    fn cloned(&self) -> Box<dyn PlainWriter> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn PlainWriter> {
    fn clone(&self) -> Self {
        (**self).cloned()
    }
}

/// Writes a stream.
pub trait StreamWriter: fmt::Debug + Send + Sync {
    /// Appends the data of an event, if it has any.
    fn event(&mut self, event: &Event, out: &mut Vec<u8>);

    /// Appends the end of a complete response.
    fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>);

    /// Appends an error, and ends the stream. A stream without a place for errors gets nothing.
    fn error(&mut self, error: &Value, out: &mut Vec<u8>) {
        openai_chat::CompletionStream::error(error, out);
    }
}

/// A shared format; each is equal to itself only.
#[derive(Debug, Clone)]
pub struct OtherFormat(Arc<dyn ResponseFormat>);

impl OtherFormat {
    /// Returns the format itself.
    pub fn get(&self) -> &dyn ResponseFormat {
        &*self.0
    }
}

impl<F: ResponseFormat + 'static> From<F> for OtherFormat {
    fn from(format: F) -> Self {
        Self(Arc::new(format))
    }
}

impl PartialEq for OtherFormat {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OtherFormat {}
