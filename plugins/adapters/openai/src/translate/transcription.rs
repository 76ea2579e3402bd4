//! The words of a recording (`POST /audio/transcriptions` and `POST /audio/translations`).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use weir_sdk::adapter::{
    Event, Failure, StartedExchange, Step, TranscriptForm, TranscriptRequest, TranscriptionRequest,
};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, FinishReason, Usage};
use weir_sdk::media::json_media;
use weir_sdk::response::{self, ResponseReader, named_counts};
use weir_sdk::sse::SseEvent;
use weir_sdk::text;
use weir_sdk::wire::refuse;

use super::form::{Form, FormFile};
use super::options::Options;
use super::{OpenAi, OpenAiReader, errors};

const TRANSCRIPTIONS: &str = "/audio/transcriptions";
const TRANSLATIONS: &str = "/audio/translations";

/// Fields of each request that the adapter writes itself.
const OWN_FIELDS: [&str; 9] = [
    "file",
    "model",
    "language",
    "prompt",
    "temperature",
    "response_format",
    "timestamp_granularities",
    "timestamp_granularities[]",
    "stream",
];

#[derive(Debug)]
pub struct TranscriptResponse {
    form: TranscriptForm,
    blocks: Blocks,
    has_text: bool,
    is_done: bool,
}

/// A response, or an event of a stream.
#[derive(Deserialize)]
struct TranscriptBody<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    delta: Option<String>,
    usage: Option<WireUsage>,
    #[serde(borrow)]
    language: Option<&'a RawValue>,
    #[serde(borrow)]
    duration: Option<&'a RawValue>,
    #[serde(borrow)]
    segments: Option<&'a RawValue>,
    #[serde(borrow)]
    words: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Usage in tokens or in seconds.
#[derive(Default, Deserialize)]
struct WireUsage {
    seconds: Option<f64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_token_details: Option<TokenDetails>,
}

#[derive(Deserialize)]
struct TokenDetails {
    audio_tokens: Option<u64>,
}

pub(super) fn begin(
    request: &TranscriptRequest,
    options: &Options<'_>,
) -> Result<StartedExchange<OpenAi>, Failure> {
    let task = &request.task;
    let mut form = Form::new(&fields(task)?)?;
    form.attach(&FormFile {
        field: "file",
        name: &task.file_name,
        media_type: &request.recording.media_type,
        index: 0,
    });
    let path = match task.translate {
        true => TRANSLATIONS,
        false => TRANSCRIPTIONS,
    };
    let reader = OpenAiReader::Transcription(TranscriptResponse {
        form: task.form,
        blocks: Blocks::default(),
        has_text: false,
        is_done: false,
    });
    Ok(StartedExchange {
        exchange: ResponseReader::new(task.stream, reader),
        step: Step::Send(form.post(options.path(path, &task.model))),
        ignored: Vec::new(),
    })
}

/// Returns the names and texts of a form. An item of a list has brackets behind its name.
fn fields(task: &TranscriptionRequest) -> Result<Vec<(Cow<'_, str>, String)>, Failure> {
    let format = match task.form {
        TranscriptForm::Text => "json",
        TranscriptForm::Timed => "verbose_json",
        TranscriptForm::Srt => "srt",
        TranscriptForm::Vtt => "vtt",
    };
    let mut fields = vec![
        (Cow::from("model"), task.model.clone()),
        ("response_format".into(), format.to_owned()),
    ];
    for (name, text) in [("language", &task.language), ("prompt", &task.prompt)] {
        fields.extend(text.clone().map(|text| (name.into(), text)));
    }
    let temperature = task.temperature.map(|value| value.to_string());
    fields.extend(temperature.map(|value| ("temperature".into(), value)));
    let timings = task.timings.iter();
    fields.extend(timings.map(|word| ("timestamp_granularities[]".into(), word.clone())));
    if task.stream {
        fields.push(("stream".into(), "true".to_owned()));
    }
    for (name, json) in &task.extra {
        if OWN_FIELDS.contains(&name.as_str()) {
            return Err(refuse(name, name));
        }
        let value: Value =
            serde_json::from_str(json).map_err(|error| refuse(name, format!("{name}: {error}")))?;
        match value {
            Value::Array(items) => {
                for item in items {
                    fields.push((format!("{name}[]").into(), form_text(name, item)?));
                }
            }
            value => fields.push((name.into(), form_text(name, value)?)),
        }
    }
    Ok(fields)
}

/// Returns the text of a value in a form.
fn form_text(name: &str, value: Value) -> Result<String, Failure> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(refuse(name, name)),
    }
}

impl TranscriptResponse {
    pub(super) fn read_event(
        &mut self,
        event: SseEvent<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        // Nothing belongs behind the final event.
        if event.data == "[DONE]" || self.is_done {
            return Ok(());
        }
        let body = read(event.data)?;
        match body.kind.as_deref() {
            Some("transcript.text.delta") => {
                self.write(body.delta.as_deref().unwrap_or_default(), events);
            }
            Some("transcript.text.done") => {
                if !self.has_text {
                    self.write(body.text.as_deref().unwrap_or_default(), events);
                }
                self.blocks.end_run(events);
                events.extend(body.usage.map(usage));
                self.is_done = true;
            }
            // Segments of speakers, and later kinds.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn read_whole(
        &mut self,
        body: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let body = text::lossy(body);
        self.is_done = true;
        if matches!(self.form, TranscriptForm::Srt | TranscriptForm::Vtt) {
            // An error of a server that says 200.
            if body.starts_with('{') {
                read(&body)?;
                return Err(Failure::malformed("the answer is JSON, and no subtitles"));
            }
            self.write(&body, events);
            self.blocks.end_run(events);
            return Ok(());
        }
        let body = read(&body)?;
        let Some(text) = &body.text else {
            return Err(Failure::malformed("the answer has no text"));
        };
        self.write(text, events);
        self.blocks.end_run(events);
        if self.form == TranscriptForm::Timed {
            events.push(json_media(body.timings()));
        }
        // Servers that count no usage still tell the duration.
        let duration = body.duration;
        let duration = duration.and_then(|json| serde_json::from_str(json.get()).ok());
        let by_duration = duration.map(|seconds| WireUsage {
            seconds: Some(seconds),
            ..WireUsage::default()
        });
        events.extend(body.usage.or(by_duration).map(usage));
        Ok(())
    }

    pub(super) fn conclude(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        if !self.is_done {
            return Err(response::cut());
        }
        events.push(Event::Finish(FinishReason::Stop));
        Ok(())
    }

    fn write(&mut self, text: &str, events: &mut Vec<Event>) {
        self.has_text = true;
        self.blocks.say(Block::Text, text.to_owned(), events);
    }
}

impl TranscriptBody<'_> {
    /// Returns the timings as a JSON object.
    fn timings(&self) -> Vec<u8> {
        let fields = [
            ("language", self.language),
            ("duration", self.duration),
            ("segments", self.segments),
            ("words", self.words),
        ];
        let fields: serde_json::Map<String, Value> = fields
            .into_iter()
            .filter_map(|(name, json)| {
                let value = serde_json::from_str(json?.get()).ok()?;
                Some((name.to_owned(), value))
            })
            .collect();
        serde_json::to_vec(&fields).expect("JSON serializes")
    }
}

fn read(json: &str) -> Result<TranscriptBody<'_>, Failure> {
    let body: TranscriptBody<'_> =
        serde_json::from_str(json).map_err(|error| response::unreadable("a transcript", &error))?;
    match body.error.is_some_and(errors::is_error) {
        true => Err(errors::from_error(json)),
        false => Ok(body),
    }
}

fn usage(usage: WireUsage) -> Event {
    // A negative or invalid number is zero.
    let seconds = usage.seconds.map(|seconds| seconds.ceil() as u64);
    let audio = usage.input_token_details.and_then(|of| of.audio_tokens);
    Event::Usage(Usage {
        input_tokens: usage.input_tokens,
        cache_read_tokens: None,
        cache_write_short_tokens: None,
        cache_write_long_tokens: None,
        output_tokens: usage.output_tokens,
        reasoning_tokens: None,
        images: None,
        other: named_counts([("audio-input-tokens", audio), ("audio-seconds", seconds)]),
    })
}
