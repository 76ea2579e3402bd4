//! The response: JSON, text, or events.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use weir_ledger::Credits;
use weir_sandbox::adapter::bindings::chat::Event;

use super::{TranscriptFormat, TranscriptionForm};
use crate::openai_chat::{data_event, json};
use crate::{BilledUsage, DataFault};

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

/// The data beside the text, in the upstream's words.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
struct Timings {
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<Vec<Box<RawValue>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<Vec<Box<RawValue>>>,
}

#[derive(Serialize)]
struct TranscriptBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'static str>,
    text: &'a str,
    #[serde(flatten)]
    timings: Option<&'a Timings>,
    usage: TranscriptUsage,
}

#[derive(Serialize)]
struct TranscriptEvent<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<TranscriptUsage>,
}

#[derive(Serialize)]
struct TranscriptUsage {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<u64>,
    #[serde(flatten)]
    tokens: Option<UsedTokens>,
    /// weir's own field: the charge of the request.
    credits: Credits,
}

#[derive(Serialize)]
struct UsedTokens {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    input_token_details: InputDetails,
}

#[derive(Serialize)]
struct InputDetails {
    text_tokens: u64,
    audio_tokens: u64,
}

impl TranscriptUsage {
    fn of(billed: &BilledUsage) -> Self {
        let (tokens, credits) = (billed.tokens, billed.credits);
        if billed.by_unit {
            return Self {
                kind: "duration",
                seconds: Some(tokens.input),
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

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        match event {
            Event::Fragment(piece) => self.text.push_str(&piece.text),
            Event::Media(media) => match serde_json::from_slice(&media.data) {
                Ok(timings) => self.timings = Some(timings),
                Err(_) => self.fault = Some("timings of another form"),
            },
            _ => {}
        }
    }

    /// Checks the timings.
    ///
    /// # Errors
    ///
    /// The fault of the upstream.
    pub fn check(&self) -> Result<(), DataFault> {
        self.fault
            .map_or(Ok(()), |fault| Err(DataFault::Invalid(fault)))
    }

    /// Discards an attempt without output.
    pub fn clear(&mut self) {
        *self = Self::new(self.form);
    }

    /// Returns the body.
    pub fn into_body(self, billed: &BilledUsage) -> Vec<u8> {
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

impl TranscriptStream {
    /// Appends the data of an event.
    pub fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
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

    /// Appends the end of a complete response.
    pub fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>) {
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
