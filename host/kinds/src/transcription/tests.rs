//! Requests for the words of a recording, and responses with them.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use futures_util::FutureExt;
use serde_json::{Value, json};
use weir_dialects::other::{PlainWriter, StreamWriter};
use weir_dialects::{Attachment, BilledUsage, DataFault};
use weir_ledger::{Credits, Quantity, TokenCounts, Unit};
use weir_sandbox::adapter::bindings::chat::{Event, Fragment};
use weir_sandbox::adapter::bindings::transcription::{TranscriptForm, TranscriptionRequest};

use super::request::parse;
use super::{Transcript, TranscriptFormat, TranscriptStream, TranscriptionForm, TranscriptionKind};
use crate::schema_tests::{check_events, checked, data};

const BOUNDARY: &str = "b";

/// Writes a form; a name with a file name behind a colon is that of a file.
fn form(fields: &[(&str, &str)]) -> String {
    let mut form = String::new();
    for (name, text) in fields {
        let head = match name.split_once(':') {
            Some((name, file)) => format!("name=\"{name}\"; filename=\"{file}\""),
            None => format!("name=\"{name}\""),
        };
        form += &format!("--b\r\nContent-Disposition: form-data; {head}\r\n\r\n{text}\r\n");
    }
    form + "--b--\r\n"
}

fn asked_of(
    kind: TranscriptionKind,
    fields: &[(&str, &str)],
) -> Result<(TranscriptionRequest, Attachment), Option<String>> {
    let body = form(fields).into_bytes();
    let parsed = parse(body.into(), BOUNDARY, kind).now_or_never();
    let parsed = parsed.expect("the whole body is here");
    let (request, _, recording) = parsed.map_err(|error| error.param().map(str::to_owned))?;
    Ok((request.task, recording))
}

fn asked(fields: &[(&str, &str)]) -> Result<(TranscriptionRequest, Attachment), Option<String>> {
    asked_of(TranscriptionKind::Transcription, fields)
}

#[test]
fn a_form_may_have_its_fields_in_any_order() {
    for fields in [
        [("model", "m"), ("file:a.mp3", "x")],
        [("file:a.mp3", "x"), ("model", "m")],
    ] {
        let (task, recording) = asked(&fields).unwrap();
        assert_eq!(
            (task.model.as_str(), task.form),
            ("m", TranscriptForm::Text)
        );
        assert_eq!(task.file_name, "a.mp3");
        assert_eq!(recording.media_type, "audio/mpeg");
        assert_eq!(&recording.data[..], b"x");
    }
    let (task, _) = asked(&[
        ("model", "m"),
        ("file:a.wav", "x"),
        ("language", "en"),
        ("prompt", "weir"),
        ("temperature", "0.5"),
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities[]", "segment"),
        ("include[]", "logprobs"),
        ("chunking_strategy", "auto"),
    ])
    .unwrap();
    assert_eq!(task.form, TranscriptForm::Timed);
    assert_eq!(task.timings, ["word", "segment"]);
    assert_eq!(task.temperature, Some(0.5));
    let extra: Vec<_> = task
        .extra
        .iter()
        .map(|(name, json)| (&**name, &**json))
        .collect();
    assert_eq!(
        extra,
        [
            ("chunking_strategy", "\"auto\""),
            ("include", "[\"logprobs\"]")
        ]
    );
}

#[test]
fn a_wrong_field_is_named() {
    let file = ("file:a.wav", "x");
    for (fields, param) in [
        (&[file][..], "model"),
        (&[("model", "m")], "file"),
        (&[("model", "m"), ("file:a.wav", "")], "file"),
        (&[("model", "m"), file, file], "file"),
        (&[("model", "m"), ("model", "n"), file], "model"),
        (
            &[("model", "m"), ("response_format", "diarized_json"), file],
            "response_format",
        ),
        (&[("model", "m"), ("temperature", "2"), file], "temperature"),
        (
            &[("model", "m"), ("temperature", "warm"), file],
            "temperature",
        ),
        (
            &[("model", "m"), ("timestamp_granularities[]", "word"), file],
            "timestamp_granularities",
        ),
        (
            &[
                ("model", "m"),
                ("stream", "true"),
                ("response_format", "srt"),
                file,
            ],
            "stream",
        ),
    ] {
        assert_eq!(
            asked(fields).err(),
            Some(Some(param.to_owned())),
            "{fields:?}"
        );
    }
    let fields = [("model", "m"), ("language", "en"), file];
    let refused = asked_of(TranscriptionKind::Translation, &fields).err();
    assert_eq!(refused, Some(Some("language".to_owned())));
}

#[test]
fn the_name_of_a_file_cannot_break_out_of_a_form() {
    for (said, name) in [
        ("a.mp3", "a.mp3"),
        ("../../a\\b.ogg", "....ab.ogg"),
        ("blob", "recording.wav"),
        ("", "recording.wav"),
    ] {
        let file = format!("file:{said}");
        let (task, _) = asked(&[("model", "m"), (&file, "x")]).unwrap();
        assert_eq!(task.file_name, name, "{said}");
    }
}

const BILLED: BilledUsage = BilledUsage {
    credits: Credits::from_micro(1_000_000),
    quantity: Quantity {
        unit: Unit::Tokens,
        count: 12,
    },
    tokens: TokenCounts {
        input: 10,
        cache_read: 0,
        cache_write_short: 0,
        cache_write_long: 0,
        output: 2,
        reasoning: 0,
        audio_input: 8,
        audio_output: 0,
        image_output: 0,
    },
};

fn said(text: &str) -> Event {
    Event::Fragment(Fragment {
        index: 0,
        text: text.to_owned(),
    })
}

fn transcript(format: TranscriptFormat) -> Transcript {
    let mut transcript = Transcript::new(TranscriptionForm {
        format,
        translates: false,
    });
    for event in [said("Hello "), said("you")] {
        transcript.push(&event);
    }
    transcript
}

#[test]
fn a_transcript_is_json_or_text() {
    let body = |transcript: Transcript, billed: &BilledUsage| -> Value {
        checked("TranscriptAnswer", &Box::new(transcript).into_body(billed))
    };
    assert_eq!(
        body(transcript(TranscriptFormat::Json), &BILLED),
        json!({"text": "Hello you", "usage": {
            "type": "tokens", "input_tokens": 10, "output_tokens": 2, "total_tokens": 12,
            "input_token_details": {"text_tokens": 2, "audio_tokens": 8}, "credits": 1,
        }})
    );
    let by_second = BilledUsage {
        quantity: Quantity::new(Unit::Seconds, 10),
        ..BILLED
    };
    let mut timed = transcript(TranscriptFormat::VerboseJson);
    timed.push(&data(
        r#"{"language":"english","duration":1.5,"segments":[{"id":0}]}"#,
    ));
    assert_eq!(timed.check(), Ok(()));
    assert_eq!(
        body(timed, &by_second),
        json!({
            "task": "transcribe", "text": "Hello you", "language": "english", "duration": 1.5, "segments": [{"id": 0}],
            "usage": {"type": "duration", "seconds": 10, "credits": 1},
        })
    );
    let text = Box::new(transcript(TranscriptFormat::Text)).into_body(&BILLED);
    assert_eq!(text, b"Hello you\n");
    let mut broken = transcript(TranscriptFormat::VerboseJson);
    broken.push(&data(r#"{"segments":7}"#));
    assert!(matches!(broken.check(), Err(DataFault::Invalid(_))));
}

#[test]
fn a_stream_adds_up_to_the_text() {
    let mut stream = TranscriptStream::default();
    let mut out = Vec::new();
    for event in [said("Hello "), said("you")] {
        stream.event(&event, &mut out);
    }
    stream.finish(&BILLED, &mut out);
    check_events("TranscriptEvent", &out);
    let out = String::from_utf8(out).unwrap();
    let events: Vec<Value> = out
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(events.len(), 3);
    assert_eq!(
        events[0],
        json!({"type": "transcript.text.delta", "delta": "Hello "})
    );
    assert_eq!(events[2]["type"], "transcript.text.done");
    assert_eq!(events[2]["text"], "Hello you");
    assert_eq!(events[2]["usage"]["total_tokens"], 12);
}
