//! The response as a stream: as server-sent events, or as a list that grows.
//!
//! **Invariant:** the chunks of a stream add up to the plain response to the same events.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use weir_sandbox::adapter::bindings::chat::Event;

use super::StreamForm;
use super::answer::{Candidate, GeneratedBody, ModelContent, UsageMetadata, write_json};
use super::parts::{AnswerPart, ContentParts, finish_word};
use crate::{AnswerHead, BilledUsage};

/// An empty event: Google's SDK for Python (google-genai 3.6.1) takes a comment for data and fails.
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b"\n\n");

/// White space between the items of a list.
pub const LIST_KEEP_ALIVE: Bytes = Bytes::from_static(b"\n");

/// Writes a stream.
#[derive(Debug)]
pub struct ContentStream {
    head: AnswerHead,
    form: StreamForm,
    begun: bool,
    blocks: ContentParts,
    finish: Option<&'static str>,
}

impl ContentStream {
    /// Returns an empty stream.
    pub fn new(head: AnswerHead, form: StreamForm) -> Self {
        Self {
            head,
            form,
            begun: false,
            blocks: ContentParts::default(),
            finish: None,
        }
    }

    /// Sets the provider of the following events.
    pub fn answered_by(&mut self, provider: &str) {
        self.blocks.answered_by(provider);
    }

    /// Appends the data of an event. [`Self::finish`] writes the end after the settlement.
    pub fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        if let Event::Finish(reason) = event {
            self.finish = Some(finish_word(reason));
        }
        let mut parts = Vec::new();
        self.blocks.follow(event, |new| parts.push(new.part));
        if !parts.is_empty() {
            let candidate = Candidate {
                content: ModelContent::new(&parts),
                finish_reason: None,
                index: 0,
                grounding_metadata: None,
            };
            write_chunk(
                &self.head,
                candidate,
                None,
                frame(self.form, &mut self.begun),
                out,
            );
        }
    }

    /// Appends the end: the finish reason, the sources and the usage.
    pub fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>) {
        let parts = [AnswerPart::empty_text()];
        let candidate = Candidate {
            content: ModelContent::new(&parts),
            finish_reason: Some(self.finish.unwrap_or("STOP")),
            index: 0,
            grounding_metadata: self.blocks.sources(),
        };
        let frame = frame(self.form, &mut self.begun);
        write_chunk(&self.head, candidate, Some(billed.into()), frame, out);
        self.end(out);
    }

    /// Appends an error, and ends the stream. A list ends, too, so that its reader can parse the error.
    pub fn error(&mut self, error: &Value, out: &mut Vec<u8>) {
        write(error, frame(self.form, &mut self.begun), out);
        self.end(out);
    }

    fn end(&self, out: &mut Vec<u8>) {
        if self.form == StreamForm::List {
            out.extend_from_slice(b"\n]");
        }
    }
}

/// Returns the text before and behind the next object.
fn frame(form: StreamForm, begun: &mut bool) -> (&'static str, &'static str) {
    match (form, std::mem::replace(begun, true)) {
        (StreamForm::Events, _) => ("data: ", "\n\n"),
        (StreamForm::List, false) => ("[", ""),
        (StreamForm::List, true) => (",\n", ""),
    }
}

fn write_chunk(
    head: &AnswerHead,
    candidate: Candidate<'_>,
    usage_metadata: Option<UsageMetadata>,
    frame: (&str, &str),
    out: &mut Vec<u8>,
) {
    let chunk = GeneratedBody {
        candidates: [candidate],
        usage_metadata,
        model_version: &head.model,
        response_id: &head.id,
    };
    write(&chunk, frame, out);
}

fn write<T: Serialize>(object: &T, (before, behind): (&str, &str), out: &mut Vec<u8>) {
    out.extend_from_slice(before.as_bytes());
    write_json(object, out);
    out.extend_from_slice(behind.as_bytes());
}
