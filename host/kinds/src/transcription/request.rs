//! The form of a request, and its translation to the plugins' vocabulary.

use bytes::Bytes;
use serde_json::{Map, Value};
use weir_dialects::Attachment;
use weir_dialects::form::{self, FormPart};
use weir_dialects::json::{
    self, BoundedList, ExtraFields, FieldFault, MAX_EXTRA, Text, between, check_at_most,
    check_length, is_media_type_name, required,
};
use weir_dialects::object;
use weir_dialects::openai::{MAX_MODEL_CHARS, client};
use weir_dialects::schema::KnownFields;
use weir_errors::ApiError;
use weir_sandbox::adapter::OtherRequest;
use weir_sandbox::adapter::bindings::transcription::{
    Request, TranscriptForm, TranscriptionRequest,
};

use super::{TranscriptFormat, TranscriptionForm};
use crate::KindCall;

/// The dialect's name in the contract.
const NAME: &str = "openai-transcription";
/// The maximum characters of a prompt.
const MAX_PROMPT_CHARS: usize = 1 << 14;
/// The maximum characters of a language.
const MAX_LANGUAGE_CHARS: usize = 64;
/// The maximum characters of a file's name that weir passes on.
const MAX_FILE_NAME_CHARS: usize = 128;
/// The kinds of timings.
const TIMINGS: [&str; 2] = ["word", "segment"];
/// The fields with numbers and booleans.
const OTHERS: [&str; 2] = ["temperature", "stream"];

/// Containers of audio, with their media types and the usual endings of files.
const CONTAINERS: [(&str, &[&str]); 6] = [
    ("audio/flac", &["flac"]),
    ("audio/mpeg", &["mp3", "mpga", "mpeg"]),
    ("audio/mp4", &["mp4", "m4a"]),
    ("audio/ogg", &["ogg", "oga", "opus"]),
    ("audio/wav", &["wav"]),
    ("audio/webm", &["webm"]),
];

/// The endpoint of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptionKind {
    /// The words in the language of the recording.
    Transcription,
    /// The words in English.
    Translation,
}

/// Fields of OpenAI's servers (openai 3.57.0, `types/audio/transcription_create_params.py`).
const PASSED_ON: KnownFields = &[
    (
        "chunking_strategy",
        "The provider's way to cut the recording into pieces.",
    ),
    ("include", "Further fields of the response."),
    ("keywords", "Words that the recording may have."),
    (
        "known_speaker_names",
        "The names of people in the recording.",
    ),
    ("known_speaker_references", "Recordings of these people."),
    ("languages", "The languages that the recording may have."),
];

object! {
    /// A request for the words of a recording, as a form. Fields that weir does not know go on to the provider.
    struct TranscriptionFields<'de> as "TranscriptionForm" {
        /// The id of a model of the kind `transcription`, as `GET /models` lists them.
        "model": model: Text<'de> = [Required, Chars(1, MAX_MODEL_CHARS)],
        /// The language of the recording, such as `en`.
        "language": language: String = [Chars(0, MAX_LANGUAGE_CHARS)],
        /// A text that goes before the recording's, or names words of it.
        "prompt": prompt: String = [Chars(0, MAX_PROMPT_CHARS)],
        /// The sampling temperature.
        "temperature": temperature: f64 = [Between(0.0, 1.0)],
        /// The form of the response; default: `json`.
        "response_format": response_format: Text<'de> = [OneOf(&["json", "text", "verbose_json", "srt", "vtt"])],
        /// The timings of `verbose_json`.
        "timestamp_granularities": timings: BoundedList<String, 2> = [EachOf(&TIMINGS)],
        /// Whether the response is a stream of events, with the form `json` or `text`.
        "stream": stream: bool,
        others: ExtraFields<'de, MAX_EXTRA> = PASSED_ON,
    }
}

/// Reads a form with this boundary.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the name of the field as `param` unless the body is not a form.
pub async fn read(
    body: Bytes,
    boundary: &str,
    kind: TranscriptionKind,
) -> Result<KindCall, ApiError> {
    let body_bytes = body.len();
    let (request, form, recording) = parse(body, boundary, kind).await?;
    Ok(KindCall {
        attachments: vec![recording],
        ..KindCall::new(OtherRequest::Transcription(request), body_bytes, form)
    })
}

/// Returns the request, the form of its response, and the recording.
pub(super) async fn parse(
    body: Bytes,
    boundary: &str,
    kind: TranscriptionKind,
) -> Result<(Request, TranscriptionForm, Attachment), ApiError> {
    let mut fields = Map::new();
    let mut file = None;
    for part in form::parts(body, boundary).await? {
        match part.name.as_str() {
            "file" if file.is_some() => {
                return Err(FieldFault::new("file", "is given more than once").into());
            }
            "file" => file = Some(part),
            name => add(&mut fields, name, part.text()?)?,
        }
    }
    let file = required(file, "file")?;
    if file.data.is_empty() {
        return Err(FieldFault::new("file", "must not be an empty file").into());
    }
    // From here on, the fields are checked like a JSON body.
    let fields = Value::Object(fields).to_string();
    Ok(translate(json::read(fields.as_bytes())?, file, kind)?)
}

/// Adds a field. A name with `[]` is an item of a list.
fn add(fields: &mut Map<String, Value>, name: &str, text: &str) -> Result<(), FieldFault> {
    let value = form::value(text, OTHERS.contains(&name));
    if let Some(list) = name.strip_suffix("[]") {
        let items = fields
            .entry(list)
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(items) = items {
            items.push(value);
            return Ok(());
        }
    } else if !fields.contains_key(name) {
        fields.insert(name.to_owned(), value);
        return Ok(());
    }
    Err(FieldFault::new(name, "is given more than once"))
}

fn translate(
    body: TranscriptionFields<'_>,
    file: FormPart,
    kind: TranscriptionKind,
) -> Result<(Request, TranscriptionForm, Attachment), FieldFault> {
    let model = required(body.model, "model")?.into_string();
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    for (text, most, field) in [
        (&body.language, MAX_LANGUAGE_CHARS, "language"),
        (&body.prompt, MAX_PROMPT_CHARS, "prompt"),
    ] {
        if let Some(text) = text {
            check_at_most(text, most, field)?;
        }
    }
    let temperature = between(body.temperature, 0, 1, "temperature")?;
    let (format, form) = match body.response_format.as_ref().map_or("json", Text::as_str) {
        "json" => (TranscriptFormat::Json, TranscriptForm::Text),
        "text" => (TranscriptFormat::Text, TranscriptForm::Text),
        "verbose_json" => (TranscriptFormat::VerboseJson, TranscriptForm::Timed),
        "srt" => (TranscriptFormat::Text, TranscriptForm::Srt),
        "vtt" => (TranscriptFormat::Text, TranscriptForm::Vtt),
        _ => {
            let what = "must be json, text, verbose_json, srt or vtt";
            return Err(FieldFault::new("response_format", what));
        }
    };
    let timings = json::items(body.timings);
    let field = "timestamp_granularities";
    if timings.iter().any(|word| !TIMINGS.contains(&word.as_str())) {
        return Err(FieldFault::new(field, "must be word or segment"));
    }
    if !timings.is_empty() && form != TranscriptForm::Timed {
        return Err(FieldFault::new(
            field,
            "needs the response_format verbose_json",
        ));
    }
    let stream = body.stream == Some(true);
    if stream && form != TranscriptForm::Text {
        return Err(FieldFault::new(
            "stream",
            "needs the response_format json or text",
        ));
    }
    let translate = kind == TranscriptionKind::Translation;
    for (is_given, field) in [(stream, "stream"), (body.language.is_some(), "language")] {
        if translate && is_given {
            return Err(FieldFault::new(field, "is not a field of translations"));
        }
    }
    let file_name = file_name(&file);
    let media_type = media_type(&file, &file_name);
    let extra = body.others.into_fields();
    let recording = Attachment {
        media_type,
        data: file.data,
    };
    let request = Request {
        client: client(NAME, &extra)?,
        recording: recording.described(),
        task: TranscriptionRequest {
            model,
            file_name,
            translate,
            language: body.language.filter(|text| !text.is_empty()),
            prompt: body.prompt.filter(|text| !text.is_empty()),
            temperature,
            form,
            timings,
            extra,
            stream,
        },
        attempt: 0,
        deadline_ms: 0,
    };
    let form = TranscriptionForm {
        format,
        translates: translate,
    };
    Ok((request, form, recording))
}

/// Returns the client's name of the file, without characters that end a name in a form. Models tell the container by its
/// ending.
fn file_name(file: &FormPart) -> String {
    let said = file.file_name.as_deref().unwrap_or_default();
    let is_plain = |c: &char| c.is_alphanumeric() || "._- ".contains(*c);
    let name: String = said.chars().filter(is_plain).collect();
    let skipped = name.chars().count().saturating_sub(MAX_FILE_NAME_CHARS);
    let name: String = name.chars().skip(skipped).collect();
    if name.contains('.') {
        return name;
    }
    // SDKs with bytes but no name send none.
    let ending = file.media_type.as_deref().and_then(|said| {
        let mut containers = CONTAINERS.into_iter();
        let (_, endings) = containers.find(|(media_type, _)| *media_type == said)?;
        endings.first().copied()
    });
    format!("recording.{}", ending.unwrap_or("wav"))
}

/// Returns the media type by the file's ending, or else the client's.
fn media_type(file: &FormPart, name: &str) -> String {
    let ending = name.rsplit('.').next().unwrap_or_default();
    let ending = ending.to_ascii_lowercase();
    let mut containers = CONTAINERS.into_iter();
    let by_name = containers.find(|(_, endings)| endings.contains(&ending.as_str()));
    match (by_name, &file.media_type) {
        (Some((media_type, _)), _) => media_type.to_owned(),
        (None, Some(said)) if said.split('/').all(is_media_type_name) => said.clone(),
        _ => "application/octet-stream".to_owned(),
    }
}
