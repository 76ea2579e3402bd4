//! Requests for speech, and responses with a recording.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use serde_json::{Value, json};
use weir_dialects::BilledUsage;
use weir_dialects::other::StreamWriter;
use weir_ledger::{Credits, Quantity, TokenCounts};
use weir_sandbox::adapter::bindings::chat::{Event, FinishReason, Media, MediaBytes};
use weir_sandbox::adapter::bindings::speech::{SpeechRequest, Voice};

use super::request::parse;
use super::{SpeechForm, SpeechStream};
use crate::schema_tests::check_events;

fn asked(fields: &Value) -> Result<(SpeechRequest, SpeechForm), Option<String>> {
    let parsed = parse(fields.to_string().as_bytes());
    let (request, form) = parsed.map_err(|error| error.param().map(str::to_owned))?;
    Ok((request.task, form))
}

#[test]
fn a_request_has_a_text_and_a_voice() {
    let (task, form) = asked(&json!({"model": "m", "input": "Hi", "voice": "alloy"})).unwrap();
    assert_eq!(
        (task.format.as_str(), form.media_type),
        ("mp3", "audio/mpeg")
    );
    assert!(!form.has_events);
    let (task, form) = asked(&json!({
        "model": "m", "input": "Hi", "voice": {"id": "voice_1"}, "instructions": "Whisper.",
        "response_format": "wav", "speed": 4, "stream_format": "sse", "seed": 1,
    }))
    .unwrap();
    assert_eq!(task.voice, Voice::Id("voice_1".to_owned()));
    assert_eq!(task.speed, Some(4.0));
    assert_eq!(task.extra, [("seed".to_owned(), "1".to_owned())]);
    assert!(form.has_events);
    let least = json!({"model": "m", "input": "Hi", "voice": "v"});
    for (field, value) in [
        ("model", json!(null)),
        ("model", json!("")),
        ("input", json!("")),
        ("input", json!(null)),
        ("voice", json!("")),
        ("voice", json!({})),
        ("voice", json!(7)),
        ("speed", json!(0.2)),
        ("speed", json!(4.1)),
        ("response_format", json!("midi")),
        ("stream_format", json!("ws")),
        ("instructions", json!(1)),
    ] {
        let mut body = least.clone();
        body[field] = value;
        assert_eq!(asked(&body), Err(Some(field.to_owned())), "{body}");
    }
}

fn events() -> [Event; 3] {
    [
        Event::MediaBytes(MediaBytes {
            id: 0,
            data: b"ab".to_vec(),
        }),
        Event::Media(Media {
            media_type: "audio/mpeg".to_owned(),
            data: b"c".to_vec(),
            bytes_before: Some(0),
            url: None,
            revised_prompt: None,
            is_preview: false,
        }),
        Event::Finish(FinishReason::Stop),
    ]
}

fn written(has_events: bool) -> String {
    let mut stream = SpeechStream::new(SpeechForm {
        has_events,
        media_type: "audio/mpeg",
    });
    let mut out = Vec::new();
    for event in events() {
        stream.event(&event, &mut out);
    }
    let billed = BilledUsage {
        tokens: TokenCounts {
            input: 3,
            output: 20,
            ..TokenCounts::default()
        },
        quantity: Quantity::default(),
        credits: Credits::from_micro(1_500_000),
    };
    stream.finish(&billed, &mut out);
    if has_events {
        check_events("SpeechEvent", &out);
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn a_recording_is_bytes_or_events() {
    assert_eq!(written(false), "abc");
    assert_eq!(
        written(true),
        "data: {\"type\":\"speech.audio.delta\",\"audio\":\"YWI=\"}\n\n\
         data: {\"type\":\"speech.audio.delta\",\"audio\":\"Yw==\"}\n\n\
         data: {\"type\":\"speech.audio.done\",\"usage\":{\"input_tokens\":3,\"output_tokens\":20,\"total_tokens\":23,\
         \"credits\":1.5}}\n\n"
    );
}

#[test]
fn bytes_have_no_place_for_an_error() {
    let form = |has_events| SpeechForm {
        has_events,
        media_type: "audio/mpeg",
    };
    let error = json!({"error": {"code": "x"}});
    let mut out = Vec::new();
    SpeechStream::new(form(false)).error(&error, &mut out);
    assert_eq!(out, b"");
    SpeechStream::new(form(true)).error(&error, &mut out);
    assert_eq!(out, b"event: error\ndata: {\"error\":{\"code\":\"x\"}}\n\n");
}
