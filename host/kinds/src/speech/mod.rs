//! Speech: a spoken text, in the format of OpenAI's Speech.
//!
//! The response is the bytes of the recording as they arrive, or events with pieces of it. Bytes have no place for an error,
//! so the connection of an incomplete response breaks.

mod answer;
mod request;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use serde_json::json;
use weir_dialects::other::{PlainWriter, ResponseFormat, StreamWriter};
use weir_dialects::schema::{Described as _, Schemas};
use weir_dialects::{AnswerHead, openai_chat};
use weir_errors::ApiError;
use weir_ledger::{Quantity, Unit};
use weir_sandbox::adapter::bindings::speech::{Request, SpeechRequest, Voice};
use weir_upstream::usage::RequestSize;

pub use self::answer::SpeechStream;
pub use self::request::read;
use crate::kind::{ContentPart, Contents, Kind, KindBounds, ModelTerms, ScreenedFields};

/// The output tokens of a spoken character: about 20 tokens a second (OpenAI: 0.015 USD a minute at 12 USD per million), and
/// 15 characters a second.
const TOKENS_PER_CHARACTER: f64 = 1.5;

/// The most output tokens of a spoken character at the normal speed.
const MOST_TOKENS_PER_CHARACTER: f64 = 5.0;

/// The form of a response with a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeechForm {
    /// Whether it is events, instead of bytes.
    pub has_events: bool,
    /// The media type of the recording.
    pub media_type: &'static str,
}

/// Adds the schemas of the kind.
pub(crate) fn describe(schemas: &mut Schemas) {
    request::SpeechRequestBody::schema(schemas);
    answer::describe(schemas);
}

impl ResponseFormat for SpeechForm {
    fn plain(&self, _: AnswerHead) -> Box<dyn PlainWriter> {
        unreachable!("a recording is always a stream")
    }

    fn stream(&self, _: AnswerHead) -> Box<dyn StreamWriter> {
        Box::new(SpeechStream::new(*self))
    }

    fn stream_type(&self) -> &'static str {
        match self.has_events {
            true => "text/event-stream",
            false => self.media_type,
        }
    }

    fn keep_alive(&self) -> Bytes {
        match self.has_events {
            true => openai_chat::KEEP_ALIVE,
            false => Bytes::new(),
        }
    }

    fn streams_media(&self) -> bool {
        true
    }
}

impl Kind for Request {
    fn screened_mut(&mut self) -> ScreenedFields<'_> {
        let SpeechRequest {
            model: _,
            input,
            voice: Voice::Name(voice) | Voice::Id(voice),
            instructions,
            // A format that the reader knows.
            format: _,
            speed: _,
            extra,
        } = &mut self.task;
        ScreenedFields {
            texts: [input].into_iter().chain(instructions).collect(),
            words: vec![("voice", voice)],
            extra,
        }
    }

    fn contents(&self) -> Contents<'_> {
        let task = &self.task;
        let (Voice::Name(voice) | Voice::Id(voice)) = &task.voice;
        Contents {
            messages: vec![vec![ContentPart::Text(&task.input)]],
            settings: vec![
                ("voice", Some(json!(voice))),
                (
                    "instructions",
                    task.instructions.as_ref().map(|text| json!(text)),
                ),
                ("format", Some(json!(task.format))),
                ("speed", task.speed.map(|speed| json!(speed))),
            ],
            extra: &task.extra,
        }
    }

    fn size(&self) -> RequestSize {
        let task = &self.task;
        let texts = [Some(&task.input), task.instructions.as_ref()];
        let texts = texts.into_iter().flatten().map(|text| text.len() as u64);
        let slowness = 1.0 / speed(task);
        let spoken = characters(task) * slowness * TOKENS_PER_CHARACTER;
        RequestSize {
            messages: 1,
            spoken_tokens: spoken.ceil() as u64,
            ..RequestSize::of_texts(texts, &task.extra)
        }
    }

    fn bounds(&self, model: &ModelTerms<'_>) -> Result<KindBounds, ApiError> {
        let task = &self.task;
        let mut size = self.size();
        let (count, unit, field) = match model.price_unit {
            Unit::Characters => {
                let count = characters(task) as u64;
                size.units = Some(Quantity::new(Unit::Characters, count));
                (count, "characters", "input")
            }
            _ => (size.estimated_tokens(), "tokens", longest_field(task)),
        };
        model.check_window(count, unit, field)?;
        let spoken = characters(task) * MOST_TOKENS_PER_CHARACTER / speed(task);
        Ok(KindBounds {
            size,
            output_limit: model.audio_output_limit(spoken.ceil() as u64),
        })
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn output_type(&self) -> Option<&'static str> {
        Some("speech")
    }
}

fn characters(task: &SpeechRequest) -> f64 {
    task.input.chars().count() as f64
}

fn speed(task: &SpeechRequest) -> f64 {
    task.speed.unwrap_or(1.0)
}

/// Returns the field with most of the text.
fn longest_field(task: &SpeechRequest) -> &'static str {
    match &task.instructions {
        Some(text) if text.len() > task.input.len() => "instructions",
        _ => "input",
    }
}
