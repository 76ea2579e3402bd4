//! The response: JSON, text, or events.

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_dialects::openai_chat::{data_event, json};
use weir_dialects::other::{PlainWriter, StreamWriter};
use weir_dialects::schema::{Described as _, Schemas};
use weir_dialects::written;
use weir_dialects::{BilledUsage, DataFault};
use weir_ledger::{Credits, Unit};
use weir_sandbox::adapter::bindings::chat::Event;

use super::{TranscriptFormat, TranscriptionForm};

/// A plain response under construction.
#[derive(Debug, Clone)]
pub struct Transcript {
    form: TranscriptionForm,
    text: String,
    timings: Option<Timings>,
    fault: Option<&'static str>,
}

/// A writer of events.
#[derive(Debug, Default)]
pub struct TranscriptStream {
    text: String,
}

written! {
    /// The parts and the words of a recording.
    #[derive(Debug, Clone, Default, Deserialize)]
    struct Timings as "TranscriptTimings" {
        /// In `verbose_json`: the language of the recording.
        #[serde(skip_serializing_if = "Option::is_none")]
        language: Option<String>,
        /// In `verbose_json`: the length of the recording in seconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        duration: Option<f64>,
        /// In `verbose_json`: the parts with their times, in the provider's form.
        #[serde(skip_serializing_if = "Option::is_none")]
        segments: Option<Vec<Box<RawValue>>>,
        /// In `verbose_json`: the words with their times, in the provider's form.
        #[serde(skip_serializing_if = "Option::is_none")]
        words: Option<Vec<Box<RawValue>>>,
    }
}

written! {
    /// The words of a recording.
    struct TranscriptBody<'a> as "TranscriptAnswer" {
        /// In `verbose_json`: the kind of the work.
        #[serde(skip_serializing_if = "Option::is_none")]
        task: Option<&'static str> = [OneOf(&["transcribe", "translate"])],
        /// The words.
        text: &'a str,
        #[serde(flatten)]
        timings: Option<&'a Timings>,
        /// The usage.
        usage: TranscriptUsage,
    }
}

written! {
    /// An event of a stream in Transcriptions: the next piece of the text, or its end.
    struct TranscriptEvent<'a> as "TranscriptEvent" {
        /// The kind of the event.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["transcript.text.delta", "transcript.text.done"])],
        /// The next piece of the text.
        #[serde(skip_serializing_if = "Option::is_none")]
        delta: Option<&'a str>,
        /// At the end: the whole text.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a str>,
        /// At the end: the usage.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<TranscriptUsage>,
    }
}

written! {
    /// The usage and its charge.
    struct TranscriptUsage as "TranscriptUsage" {
        /// The unit of the usage, which determines the other fields.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["duration", "tokens"])],
        /// With `duration`: the length of the recording.
        #[serde(skip_serializing_if = "Option::is_none")]
        seconds: Option<u64>,
        #[serde(flatten)]
        tokens: Option<UsedTokens>,
        /// The charge of the request, in credits. It is a field of weir.
        credits: Credits,
    }
}

written! {
    /// The used tokens.
    struct UsedTokens as "TranscriptTokens" {
        /// With `tokens`: the tokens of the recording and the prompt.
        input_tokens: u64,
        /// With `tokens`: the tokens of the text.
        output_tokens: u64,
        /// With `tokens`: the tokens of both.
        total_tokens: u64,
        /// With `tokens`: the tokens of the input, by kind.
        input_token_details: InputDetails,
    }
}

written! {
    /// The tokens of the input, by kind.
    struct InputDetails as "TranscriptInputTokens" {
        /// The tokens of the prompt.
        text_tokens: u64,
        /// The tokens of the recording.
        audio_tokens: u64,
    }
}

/// Adds the schemas of a response and of an event.
pub(super) fn describe(schemas: &mut Schemas) {
    TranscriptBody::schema(schemas);
    TranscriptEvent::schema(schemas);
}

impl TranscriptUsage {
    fn of(billed: &BilledUsage) -> Self {
        let (tokens, credits) = (billed.tokens, billed.credits);
        if billed.quantity.unit == Unit::Seconds {
            return Self {
                kind: "duration",
                seconds: Some(billed.quantity.count.unsigned_abs()),
                tokens: None,
                credits,
            };
        }
        Self {
            kind: "tokens",
            seconds: None,
            tokens: Some(UsedTokens {
                input_tokens: tokens.input,
                output_tokens: tokens.output,
                total_tokens: tokens.input.saturating_add(tokens.output),
                input_token_details: InputDetails {
                    text_tokens: tokens.input.saturating_sub(tokens.audio_input),
                    audio_tokens: tokens.audio_input,
                },
            }),
            credits,
        }
    }
}

impl Transcript {
    /// Returns a response without text.
    pub fn new(form: TranscriptionForm) -> Self {
        Self {
            form,
            text: String::new(),
            timings: None,
            fault: None,
        }
    }
}

impl PlainWriter for Transcript {
    fn push(&mut self, event: &Event) {
        match event {
            Event::Fragment(piece) => self.text.push_str(&piece.text),
            Event::Media(media) => match serde_json::from_slice(&media.data) {
                Ok(timings) => self.timings = Some(timings),
                Err(_) => self.fault = Some("timings of another form"),
            },
            _ => {}
        }
    }

    fn check(&self) -> Result<(), DataFault> {
        self.fault
            .map_or(Ok(()), |fault| Err(DataFault::Invalid(fault)))
    }

    fn clear(&mut self) {
        *self = Self::new(self.form);
    }

    fn into_body(self: Box<Self>, billed: &BilledUsage) -> Vec<u8> {
        let is_verbose = self.form.format == TranscriptFormat::VerboseJson;
        if self.form.format == TranscriptFormat::Text {
            let mut text = self.text;
            // OpenAI ends a text with a line break.
            if !text.ends_with('\n') {
                text.push('\n');
            }
            return text.into_bytes();
        }
        let task = match self.form.translates {
            true => "translate",
            false => "transcribe",
        };
        let body = TranscriptBody {
            task: is_verbose.then_some(task),
            text: &self.text,
            timings: self.timings.as_ref().filter(|_| is_verbose),
            usage: TranscriptUsage::of(billed),
        };
        let mut out = Vec::with_capacity(self.text.len() + 256);
        json(&body, &mut out);
        out
    }
}

impl StreamWriter for TranscriptStream {
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        let Event::Fragment(piece) = event else {
            return;
        };
        self.text.push_str(&piece.text);
        data_event(
            &TranscriptEvent {
                kind: "transcript.text.delta",
                delta: Some(&piece.text),
                text: None,
                usage: None,
            },
            out,
        );
    }

    fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>) {
        data_event(
            &TranscriptEvent {
                kind: "transcript.text.done",
                delta: None,
                text: Some(&self.text),
                usage: Some(TranscriptUsage::of(billed)),
            },
            out,
        );
    }
}
