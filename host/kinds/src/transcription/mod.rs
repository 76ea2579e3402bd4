//! Transcription: the words of a recording, in the format of OpenAI's Transcriptions and Translations.
//!
//! A request is a form with a file. The response is JSON, or text with or without timings, or events.

mod answer;
mod request;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};
use weir_dialects::AnswerHead;
use weir_dialects::form::{as_form, file_schema};
use weir_dialects::other::{PlainWriter, ResponseFormat, StreamWriter};
use weir_dialects::schema::{Described as _, Schemas, described, without};
use weir_errors::ApiError;
use weir_ledger::Unit;
use weir_sandbox::adapter::bindings::transcription::{
    Request, TranscriptForm, TranscriptionRequest,
};
use weir_upstream::audio_length::RecordingLength;
use weir_upstream::usage::RequestSize;

pub use self::answer::{Transcript, TranscriptStream};
pub use self::request::{TranscriptionKind, read};
use crate::kind::{
    ContentPart, Contents, Kind, KindBounds, ModelTerms, ScreenedFields, ScreenedResponse,
};

/// The most output tokens of a second of a recording.
const TOKENS_PER_SECOND: u64 = 16;

/// The length of each recording at least, which counts until weir reads it.
const LEAST_LENGTH: RecordingLength = RecordingLength {
    seconds: 1,
    is_exact: false,
};

/// The form of a response with the words of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranscriptionForm {
    /// The format of a plain response.
    pub format: TranscriptFormat,
    /// Whether the words are in English, instead of the language of the recording.
    pub translates: bool,
}

/// The format of a plain response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptFormat {
    /// An object with the text.
    Json,
    /// An object with the text and its timings.
    VerboseJson,
    /// Text, or subtitles.
    Text,
}

/// Adds the schemas of the kind.
pub(crate) fn describe(schemas: &mut Schemas) {
    request::TranscriptionFields::schema(schemas);
    answer::describe(schemas);
}

/// Makes the schema of the form from that of its fields, and adds the one of translations.
pub(crate) fn add_variants(schemas: &mut Map<String, Value>) {
    let mut transcription = as_form(&schemas["TranscriptionForm"]);
    let list = "timestamp_granularities";
    if let Some(fields) = transcription["properties"].as_object_mut()
        && let Some(timings) = fields.remove(list)
    {
        fields.insert(format!("{list}[]"), timings);
    }
    transcription["properties"]["file"] =
        file_schema("The recording: flac, mp3, mp4, ogg, wav or webm.");
    transcription["required"] = json!(["model", "file"]);
    let translation = without(&transcription, &[], &["language", "stream"]);
    let translation = described(
        translation,
        "A request for the words of a recording in English, as a form. Fields that weir does not know go on to the provider.",
    );
    schemas.insert("TranscriptionForm".to_owned(), transcription);
    schemas.insert("TranslationForm".to_owned(), translation);
}

impl ResponseFormat for TranscriptionForm {
    fn plain(&self, _: AnswerHead) -> Box<dyn PlainWriter> {
        Box::new(Transcript::new(*self))
    }

    fn stream(&self, _: AnswerHead) -> Box<dyn StreamWriter> {
        Box::new(TranscriptStream::default())
    }

    fn plain_type(&self) -> &'static str {
        match self.format {
            TranscriptFormat::Text => "text/plain; charset=utf-8",
            TranscriptFormat::Json | TranscriptFormat::VerboseJson => "application/json",
        }
    }
}

impl Kind for Request {
    fn screened_mut(&mut self) -> ScreenedFields<'_> {
        let TranscriptionRequest {
            model: _,
            file_name,
            translate: _,
            language,
            prompt,
            temperature: _,
            form: _,
            // Words that the reader knows.
            timings: _,
            extra,
            stream: _,
        } = &mut self.task;
        let language = language.iter_mut().map(|word| ("language", word));
        ScreenedFields {
            texts: prompt.iter_mut().collect(),
            words: [("file_name", file_name)]
                .into_iter()
                .chain(language)
                .collect(),
            extra,
        }
    }

    fn screened_response(&self) -> ScreenedResponse {
        match self.task.form {
            TranscriptForm::Timed => ScreenedResponse::TimedText,
            _ => ScreenedResponse::Text,
        }
    }

    fn contents(&self) -> Contents<'_> {
        let task = &self.task;
        Contents {
            messages: vec![vec![ContentPart::Recording(&task.file_name)]],
            settings: vec![
                ("language", task.language.as_ref().map(|word| json!(word))),
                ("prompt", task.prompt.as_ref().map(|text| json!(text))),
                ("temperature", task.temperature.map(|value| json!(value))),
            ],
            extra: &task.extra,
        }
    }

    fn size(&self) -> RequestSize {
        let prompt = self.task.prompt.iter().map(|text| text.len() as u64);
        RequestSize {
            messages: 1,
            ..RequestSize::of_texts(prompt, &self.task.extra)
        }
    }

    fn bounds(&self, model: &ModelTerms<'_>) -> Result<KindBounds, ApiError> {
        self.bounds_of_recording(model, LEAST_LENGTH)
    }

    fn bounds_of_recording(
        &self,
        model: &ModelTerms<'_>,
        length: RecordingLength,
    ) -> Result<KindBounds, ApiError> {
        let mut size = self.size();
        size.audio_seconds = length.seconds;
        let (count, unit) = match model.price_unit {
            Unit::Seconds => {
                size.set_seconds_as_units(length);
                (length.seconds, "seconds")
            }
            _ => (size.estimated_tokens(), "tokens"),
        };
        model.check_window(count, unit, "file")?;
        let output = TOKENS_PER_SECOND.saturating_mul(length.seconds);
        Ok(KindBounds {
            size,
            output_limit: model.audio_output_limit(output),
        })
    }

    fn is_stream(&self) -> bool {
        self.task.stream
    }

    fn is_streamed_upstream(&self) -> bool {
        self.task.stream
    }
}
