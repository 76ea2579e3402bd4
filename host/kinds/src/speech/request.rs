//! The JSON of a request, and its translation to the plugins' vocabulary.

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Value, json};
use weir_dialects::json::{
    self, ExtraFields, FieldFault, MAX_EXTRA, RefusedFields, Text, check_at_most, check_length,
    check_not_empty, required,
};
use weir_dialects::object;
use weir_dialects::openai::{MAX_MODEL_CHARS, client};
use weir_dialects::schema::{Described, Schemas};
use weir_errors::ApiError;
use weir_sandbox::adapter::OtherRequest;
use weir_sandbox::adapter::bindings::speech::{Request, SpeechRequest, Voice};

use super::SpeechForm;
use crate::KindCall;

/// The dialect's name in the contract.
const NAME: &str = "openai-speech";
/// The formats of a recording, with their media types. The first is the default.
const FORMATS: [(&str, &str); 6] = [
    ("mp3", "audio/mpeg"),
    ("opus", "audio/ogg"),
    ("aac", "audio/aac"),
    ("flac", "audio/flac"),
    ("wav", "audio/wav"),
    ("pcm", "audio/pcm"),
];
/// The maximum characters of a text; the limit of the model is usually much lower.
const MAX_INPUT_CHARS: usize = 1 << 20;
/// The maximum characters of instructions.
const MAX_INSTRUCTION_CHARS: usize = 1 << 14;
/// The maximum characters of the name or the id of a voice.
const MAX_VOICE_CHARS: usize = 256;
/// The limits of the speed, as with OpenAI.
const SPEEDS: RangeInclusive<f64> = 0.25..=4.0;

object! {
    /// A request in OpenAI's Speech. Fields that weir does not know go on to the provider.
    struct SpeechRequestBody<'de> as "SpeechRequest" {
        /// The id of a model of the kind `speech`, as `GET /models` lists them.
        "model": model: Text<'de> = [Required, Chars(1, MAX_MODEL_CHARS)],
        /// The text.
        "input": input: String = [Required, Chars(1, MAX_INPUT_CHARS)],
        /// The name of a voice, or an object with the id of a custom voice.
        "voice": voice: BodyVoice = [Required],
        /// The manner of speaking, in words.
        "instructions": instructions: String = [Chars(0, MAX_INSTRUCTION_CHARS)],
        /// The format of the recording; default: `mp3`.
        "response_format": response_format: Text<'de> = [OneOf(&["mp3", "opus", "aac", "flac", "wav", "pcm"])],
        /// The speed; default: 1.
        "speed": speed: f64 = [Between(*SPEEDS.start(), *SPEEDS.end())],
        /// `audio` for bytes, or `sse` for events; default: `audio`.
        "stream_format": stream_format: Text<'de> = [OneOf(&["audio", "sse"])],
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    /// A custom voice.
    struct VoiceObject<'de> as "SpeechVoice" {
        /// The id of the voice.
        "id": id: String = [Required, Chars(1, MAX_VOICE_CHARS)],
        others: RefusedFields,
    }
}

impl Described for BodyVoice {
    fn schema(schemas: &mut Schemas) -> Value {
        let name = json!({ "type": "string", "minLength": 1, "maxLength": MAX_VOICE_CHARS });
        json!({ "anyOf": [name, VoiceObject::schema(schemas)] })
    }
}

/// A voice: a name, or an object with an id.
pub(super) struct BodyVoice(Voice);

impl<'de> Deserialize<'de> for BodyVoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VoiceVisitor;

        impl<'de> Visitor<'de> for VoiceVisitor {
            type Value = BodyVoice;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an object with an id")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<BodyVoice, E> {
                Ok(BodyVoice(Voice::Name(name.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BodyVoice, A::Error> {
                let object = VoiceObject::deserialize(de::value::MapAccessDeserializer::new(map))?;
                let id = object
                    .id
                    .ok_or_else(|| de::Error::custom("must have an id"))?;
                Ok(BodyVoice(Voice::Id(id)))
            }
        }

        deserializer.deserialize_any(VoiceVisitor)
    }
}

/// Reads a Speech request.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read(body: &[u8]) -> Result<KindCall, ApiError> {
    let (request, form) = parse(body)?;
    Ok(KindCall::new(
        OtherRequest::Speech(request),
        body.len(),
        form,
    ))
}

/// Returns the request, and the form of its response.
pub(super) fn parse(body: &[u8]) -> Result<(Request, SpeechForm), ApiError> {
    Ok(translate(json::read(body)?)?)
}

fn translate(body: SpeechRequestBody<'_>) -> Result<(Request, SpeechForm), FieldFault> {
    let model = required(body.model, "model")?.into_string();
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    let input = required(body.input, "input")?;
    check_length(&input, MAX_INPUT_CHARS, "input")?;
    let BodyVoice(voice) = required(body.voice, "voice")?;
    let (Voice::Name(text) | Voice::Id(text)) = &voice;
    check_not_empty(text, "voice")?;
    check_length(text, MAX_VOICE_CHARS, "voice")?;
    if let Some(text) = &body.instructions {
        check_at_most(text, MAX_INSTRUCTION_CHARS, "instructions")?;
    }
    if body.speed.is_some_and(|speed| !SPEEDS.contains(&speed)) {
        return Err(FieldFault::new("speed", "must be from 0.25 to 4"));
    }
    let wanted = body.response_format.as_ref().map_or("mp3", Text::as_str);
    let Some((format, media_type)) = FORMATS.into_iter().find(|(format, _)| *format == wanted)
    else {
        let what = "must be mp3, opus, aac, flac, wav or pcm";
        return Err(FieldFault::new("response_format", what));
    };
    let has_events = match body.stream_format.as_ref().map(Text::as_str) {
        None | Some("audio") => false,
        Some("sse") => true,
        Some(_) => return Err(FieldFault::new("stream_format", "must be audio or sse")),
    };
    let extra = body.others.into_fields();
    let request = Request {
        client: client(NAME, &extra)?,
        task: SpeechRequest {
            model,
            input,
            voice,
            instructions: body.instructions.filter(|text| !text.is_empty()),
            format: format.to_owned(),
            speed: body.speed,
            extra,
        },
        attempt: 0,
        deadline_ms: 0,
    };
    let form = SpeechForm {
        has_events,
        media_type,
    };
    Ok((request, form))
}
