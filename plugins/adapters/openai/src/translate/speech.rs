//! A spoken text (`POST /audio/speech`).
//!
//! The response is the bytes of a recording, which pass on as they come, or a stream of events with pieces in base64.
//! Only events report usage; the option `speech-events` says that the model has them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use weir_sdk::adapter::{
    BodyPart, Event, Failure, HttpRequest, SpeechRequest, SpokenRequest, StartedExchange, Step,
    Voice,
};
use weir_sdk::chat::{FinishReason, Media, MediaBytes, Usage};
use weir_sdk::media::decode_base64;
use weir_sdk::response::{self, ResponseReader};
use weir_sdk::sse::SseEvent;
use weir_sdk::wire::Fields;

use super::options::Options;
use super::{OpenAi, OpenAiReader, errors};

const PATH: &str = "/audio/speech";

const RECORDING_ID: u32 = 0;

/// Fields of each request that the adapter writes itself.
const OWN_FIELDS: [&str; 7] = [
    "model",
    "input",
    "voice",
    "instructions",
    "response_format",
    "speed",
    "stream_format",
];

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    input: &'a str,
    voice: BodyVoice<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    response_format: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_format: Option<&'static str>,
    #[serde(flatten)]
    fields: Fields<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum BodyVoice<'a> {
    Name(&'a str),
    Custom { id: &'a str },
}

#[derive(Debug)]
pub struct SpeechResponse {
    media_type: &'static str,
    /// Whether the response is a stream of events.
    has_events: bool,
    has_audio: bool,
    is_done: bool,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct SpeechEvent<'a> {
    #[serde(rename = "type")]
    kind: Option<&'a str>,
    #[serde(borrow)]
    audio: Option<Cow<'a, str>>,
    usage: Option<WireUsage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

pub(super) fn begin(
    request: &SpokenRequest,
    options: &Options<'_>,
) -> Result<StartedExchange<OpenAi>, Failure> {
    let SpeechRequest {
        model,
        input,
        voice,
        instructions,
        format,
        speed,
        extra,
    } = &request.task;
    let has_events = options.has_speech_events;
    let body = Body {
        model,
        input,
        voice: match voice {
            Voice::Name(name) => BodyVoice::Name(name),
            Voice::Id(id) => BodyVoice::Custom { id },
        },
        instructions: instructions.as_deref(),
        response_format: format,
        speed: *speed,
        stream_format: has_events.then_some("sse"),
        fields: Fields::read(extra, &OWN_FIELDS, "")?,
    };
    let body = serde_json::to_vec(&body).expect("plain structs serialize");
    let reader = OpenAiReader::Speech(SpeechResponse {
        media_type: media_type(format),
        has_events,
        has_audio: false,
        is_done: false,
        usage: None,
    });
    Ok(StartedExchange {
        exchange: ResponseReader::new(has_events, reader),
        step: Step::Send(HttpRequest::post_json(
            options.path(PATH, model),
            vec![BodyPart::Bytes(body)],
        )),
        ignored: Vec::new(),
    })
}

fn media_type(format: &str) -> &'static str {
    match format {
        "mp3" => "audio/mpeg",
        "opus" => "audio/ogg",
        "aac" => "audio/aac",
        "flac" => "audio/flac",
        "wav" => "audio/wav",
        "pcm" => "audio/pcm",
        _ => "application/octet-stream",
    }
}

impl SpeechResponse {
    /// Whether the response is the bytes of the recording.
    pub(super) fn is_raw(&self) -> bool {
        !self.has_events
    }

    pub(super) fn lift<'a>(
        &mut self,
        bytes: &'a [u8],
        events: &mut Vec<Event>,
    ) -> (Cow<'a, [u8]>, Result<(), Failure>) {
        if self.has_events {
            return (Cow::Borrowed(bytes), Ok(()));
        }
        self.push_audio(bytes.to_vec(), events);
        (Cow::Borrowed(&[]), Ok(()))
    }

    fn push_audio(&mut self, data: Vec<u8>, events: &mut Vec<Event>) {
        if !data.is_empty() {
            self.has_audio = true;
            events.push(Event::MediaBytes(MediaBytes {
                id: RECORDING_ID,
                data,
            }));
        }
    }

    pub(super) fn read_event(
        &mut self,
        event: SseEvent<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let speech_event: SpeechEvent<'_> = serde_json::from_str(event.data)
            .map_err(|error| response::unreadable("a stream of speech", &error))?;
        if speech_event.error.is_some_and(errors::is_error) {
            return Err(errors::from_error(event.data));
        }
        if let Some(audio) = &speech_event.audio {
            self.push_audio(decode_base64(audio)?, events);
        }
        if speech_event.kind == Some("speech.audio.done") {
            self.is_done = true;
            self.usage = speech_event.usage.map(|usage| Usage {
                input_tokens: usage.input_tokens,
                cache_read_tokens: None,
                cache_write_short_tokens: None,
                cache_write_long_tokens: None,
                output_tokens: usage.output_tokens,
                reasoning_tokens: None,
                images: None,
                other: Vec::new(),
            });
        }
        Ok(())
    }

    /// The body is empty, unless the response has another form than the request asked for.
    pub(super) fn read_whole(&mut self, body: &[u8]) -> Result<(), Failure> {
        match self.has_events {
            false => Ok(()),
            true if body.starts_with(b"{") => {
                Err(errors::from_error(&String::from_utf8_lossy(body)))
            }
            true => Err(Failure::malformed("the answer is not a stream of events")),
        }
    }

    pub(super) fn conclude(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        if self.has_events && !self.is_done {
            return Err(response::cut());
        }
        if !self.has_audio {
            return Err(Failure::malformed("the answer has no recording"));
        }
        events.push(Event::Media(Media {
            media_type: self.media_type.to_owned(),
            data: Vec::new(),
            bytes_before: Some(RECORDING_ID),
            url: None,
            revised_prompt: None,
            is_preview: false,
        }));
        events.extend(self.usage.take().map(Event::Usage));
        events.push(Event::Finish(FinishReason::Stop));
        Ok(())
    }
}
