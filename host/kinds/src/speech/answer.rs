//! The response: the bytes of a recording, or events.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use weir_dialects::BilledUsage;
use weir_dialects::openai_chat::{CompletionStream, data_event};
use weir_dialects::other::StreamWriter;
use weir_dialects::schema::{Described as _, Schemas};
use weir_dialects::written;
use weir_ledger::Credits;
use weir_sandbox::adapter::bindings::chat::Event;

use super::SpeechForm;

/// A writer of the response.
#[derive(Debug)]
pub struct SpeechStream {
    form: SpeechForm,
}

written! {
    /// An event of a stream in Speech: a piece of the recording, or its end.
    struct SpeechEvent<'a> as "SpeechEvent" {
        /// The kind of the event.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["speech.audio.delta", "speech.audio.done"])],
        /// The next piece of the recording, in base64.
        #[serde(skip_serializing_if = "Option::is_none")]
        audio: Option<&'a str>,
        /// At the end: the token usage.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<SpeechUsage>,
    }
}

written! {
    /// The token usage and its charge.
    struct SpeechUsage as "SpeechUsage" {
        /// The tokens of the text.
        input_tokens: u64,
        /// The tokens of the recording.
        output_tokens: u64,
        /// The tokens of both.
        total_tokens: u64,
        /// The charge of the request, in credits. It is a field of weir.
        credits: Credits,
    }
}

/// Adds the schema of an event.
pub(super) fn describe(schemas: &mut Schemas) {
    SpeechEvent::schema(schemas);
}

impl SpeechStream {
    /// Returns a response without a recording.
    pub fn new(form: SpeechForm) -> Self {
        Self { form }
    }
}

impl StreamWriter for SpeechStream {
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        let data = match event {
            Event::MediaBytes(piece) => &piece.data,
            Event::Media(media) => &media.data,
            _ => return,
        };
        if data.is_empty() {
            return;
        }
        match self.form.has_events {
            false => out.extend_from_slice(data),
            true => data_event(
                &SpeechEvent {
                    kind: "speech.audio.delta",
                    audio: Some(&STANDARD.encode(data)),
                    usage: None,
                },
                out,
            ),
        }
    }

    fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>) {
        if !self.form.has_events {
            return;
        }
        let tokens = billed.tokens;
        let usage = SpeechUsage {
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            total_tokens: tokens.input.saturating_add(tokens.output),
            credits: billed.credits,
        };
        data_event(
            &SpeechEvent {
                kind: "speech.audio.done",
                audio: None,
                usage: Some(usage),
            },
            out,
        );
    }

    fn error(&mut self, error: &Value, out: &mut Vec<u8>) {
        if self.form.has_events {
            CompletionStream::error(error, out);
        }
    }
}
