//! Tests of the schemas: readers do what the schemas promise, and writers write nothing else.

#[path = "../../dialects/src/schema_tests/checks.rs"]
mod checks;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use weir_sandbox::adapter::bindings::chat::{Event, Media};

use self::checks::{Reader, bytes, fields_are_described, param, readers_keep_promises};
pub(crate) use self::checks::{check_events, checked};
use crate::images::ImageOperation;
use crate::transcription::TranscriptionKind;
use crate::{embeddings, images, moderation, rerank, speech, transcription};

/// An adapter's event with data in JSON.
pub(crate) fn data(json: &str) -> Event {
    Event::Media(Media {
        media_type: "application/json".to_owned(),
        data: json.as_bytes().to_vec(),
        bytes_before: None,
        url: None,
        revised_prompt: None,
        is_preview: false,
    })
}

/// Reads a body as a form.
fn read_form(body: &Value) -> Result<(), Option<String>> {
    let mut form = String::new();
    for (name, value) in body.as_object().expect("an object") {
        let values = match value {
            Value::Array(items) => items.clone(),
            one => vec![one.clone()],
        };
        for value in values {
            let file = if name == "file" {
                "; filename=\"a.wav\""
            } else {
                ""
            };
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            form += &format!(
                "--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{text}\r\n"
            );
        }
    }
    form += "--b--\r\n";
    let kind = TranscriptionKind::Transcription;
    let call = transcription::read(form.into_bytes().into(), "b", kind);
    param(call.now_or_never().expect("it waits for nothing"))
}

/// The requests: the name of each schema, its reader, and a good body that has each object.
fn requests() -> Vec<(&'static str, Reader, Value)> {
    vec![
        (
            "ImageRequest",
            |body| param(images::read(&bytes(body), ImageOperation::Generation)),
            json!({ "model": "m", "prompt": "x", "stream": true }),
        ),
        (
            "ImageEditRequest",
            |body| param(images::read(&bytes(body), ImageOperation::Edit)),
            json!({
                "model": "m", "prompt": "x", "images": [{ "image_url": "https://a.example" }],
                "mask": { "file_id": "f" },
            }),
        ),
        (
            "EmbeddingRequest",
            |body| param(embeddings::read(&bytes(body))),
            json!({ "model": "m", "input": "x" }),
        ),
        (
            "RerankRequest",
            |body| param(rerank::read(&bytes(body))),
            json!({ "model": "m", "query": "x", "documents": [{ "text": "x" }] }),
        ),
        (
            "ModerationRequest",
            |body| param(moderation::read(&bytes(body))),
            json!({ "model": "m", "input": "x" }),
        ),
        (
            "SpeechRequest",
            |body| param(speech::read(&bytes(body))),
            json!({ "model": "m", "input": "x", "voice": { "id": "v" } }),
        ),
        (
            "TranscriptionForm",
            read_form,
            json!({ "model": "m", "file": "x", "response_format": "verbose_json" }),
        ),
    ]
}

#[test]
fn readers_do_what_their_schemas_promise() {
    readers_keep_promises(requests());
}

#[test]
fn each_field_of_a_schema_is_described_for_people() {
    fields_are_described();
}
