//! Spoken texts (`/v1/audio/speech`), words of recordings (`/v1/audio/transcriptions`, `/v1/audio/translations`) and
//! verdicts on texts (`/v1/moderations`): with the adapter of OpenAI's API, their prices, filters, and faulty responses.
//!
//! Requests and responses have the fields of openai-python 3.52.0 (`types/audio/speech_create_params.py`,
//! `transcription_create_params.py`, `transcription.py`, `transcription_verbose.py`,
//! `transcription_text_done_event.py`, `types/moderation_create_response.py`). The package has no types of a stream of
//! speech; its events are those of openai-dart 1.0 (`SpeechStreamAudioDelta`, `SpeechStreamDone`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::client::Answer;
use tests::gateway::Builder;
use tests::recording::{FORM, form, wav};
use tests::upstream::Gate;
use tests::{Client, Gateway, Reply, Upstream};

const SPEECH: &str = "/v1/audio/speech";
const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
const MODERATIONS: &str = "/v1/moderations";

/// A gateway with models of each kind and unit: `voice` costs 20 USD a million characters, `voice-tokens` 1 and 10 USD a
/// million tokens, `ear` 0.6 USD a minute, `ear-tokens` 2 and 10 USD a million tokens, `judge` 2 USD a million tokens.
fn gateway_of(upstream: &Upstream) -> Builder {
    let model = |id: &str, kind: &str, window: u32, price: &str, more: &str| {
        format!(
            "[models.{id}]\nkind = \"{kind}\"\ncontext_window = {window}\nprice = {{ {price} }}\n{more}\
             upstreams = [{{ provider = \"scripted\", model = \"{id}-1\" }}]\n"
        )
    };
    let tables = [
        model("voice", "speech", 100, "characters = 20", ""),
        "[models.voice-tokens]\nkind = \"speech\"\ncontext_window = 100\nmax_output_tokens = 1000\n\
         price = { input = 1, output = 10 }\n\
         upstreams = [{ provider = \"scripted\", options = { speech-events = \"true\" } }]\n"
            .to_owned(),
        model("ear", "transcription", 60, "minute = 0.6", ""),
        model(
            "ear-tokens",
            "transcription",
            1_000,
            "input = 2, output = 10",
            "max_output_tokens = 100\n",
        ),
        model("judge", "moderation", 100, "input = 2, output = 0", ""),
    ];
    Gateway::builder()
        .provider("scripted", "openai", Some(upstream))
        .tables(&tables.concat())
}

async fn transcribe(client: &Client, path: &str, body: Bytes) -> Answer {
    client.send(Method::POST, path, Some(FORM), body).await
}

/// Returns status and credits of the last request with a hold.
async fn ended(client: &Client) -> (String, f64) {
    let list = client.get("/usage/requests?limit=1").await.json();
    let last = &list["requests"][0];
    let status = last["status"].as_str().unwrap_or_default();
    (status.to_owned(), last["credits"].as_f64().unwrap_or(-1.0))
}

fn settled(credits: f64) -> (String, f64) {
    ("settled".to_owned(), credits)
}

fn recording(bytes: &[u8]) -> Reply {
    Reply::new(200)
        .header("content-type", "audio/mpeg")
        .body(bytes.to_vec())
}

#[tokio::test]
async fn the_gateway_without_setup_speaks_hears_and_judges() {
    let gateway = Gateway::start().await;
    let client = gateway.client();
    let body = json!({ "model": "demo-speech", "input": "x".repeat(40), "voice": "alloy", "response_format": "wav" });
    let spoken = client.post(SPEECH, &body).await;
    assert_eq!(spoken.status, 200, "{}", spoken.text());
    assert_eq!(spoken.headers["content-type"], "audio/wav");
    // Two seconds of silence.
    assert_eq!(spoken.body.len(), 44 + 16_000);
    // 40 characters at 1 USD a million, times 1.4.
    assert_eq!(ended(&client).await, settled(0.056));

    let fields = [("model", "demo-transcription")];
    let heard = transcribe(&client, TRANSCRIPTIONS, form(&spoken.body, &fields)).await;
    assert_eq!(heard.status, 200, "{}", heard.text());
    assert_eq!(
        heard.json()["text"],
        "This is the demo's transcript of said.wav: 16044 bytes of audio/wav."
    );
    // Two seconds at 0.001 USD a minute, times 1.4: 46.67 micro-credits.
    let usage = json!({ "type": "duration", "seconds": 2, "credits": 0.046_667 });
    assert_eq!(heard.json()["usage"], usage);
    assert_eq!(ended(&client).await, settled(0.046_667));

    // The form of a recording that weir makes by default can be heard as well.
    let body = json!({ "model": "demo-speech", "input": "x".repeat(40), "voice": "alloy" });
    let spoken = client.post(SPEECH, &body).await;
    assert_eq!(spoken.headers["content-type"], "audio/mpeg");
    let heard = transcribe(
        &client,
        "/v1/audio/translations",
        form(&spoken.body, &fields),
    )
    .await;
    assert_eq!(heard.status, 200, "{}", heard.text());
    assert_eq!(heard.json()["usage"]["seconds"], 2);

    let body = json!({ "model": "demo-moderation", "input": ["a weir", "an unsafe weir"] });
    let judged = client.post(MODERATIONS, &body).await;
    assert_eq!(judged.status, 200, "{}", judged.text());
    let judged = judged.json();
    let flagged = |index: usize| judged["results"][index]["flagged"].clone();
    assert_eq!((flagged(0), flagged(1)), (json!(false), json!(true)));
    let listed = client.get("/models").await.json();
    let models = listed["models"].as_array().expect("a list");
    for kind in ["moderation", "speech", "transcription"] {
        let model = models
            .iter()
            .find(|model| model["id"] == format!("demo-{kind}"));
        assert_eq!(model.map(|model| &model["kind"]), Some(&json!(kind)));
    }
}

#[tokio::test]
async fn a_text_is_spoken_and_paid_by_character() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let body = json!({
        "model": "voice", "input": "Grüße", "voice": { "id": "voice_1" }, "instructions": "Whisper.", "speed": 1.5,
        "response_format": "opus", "seed": 1,
    });
    // Bytes that begin like an event, and bytes that no text has.
    let bytes = b"data: {\xff\0\n\n";
    upstream.will(recording(bytes).one_byte_at_a_time());
    let spoken = client.post(SPEECH, &body).await;
    assert_eq!(spoken.status, 200, "{}", spoken.text());
    assert_eq!(spoken.headers["content-type"], "audio/ogg");
    assert_eq!(&spoken.body[..], bytes);
    assert_eq!(ended(&client).await, settled(0.14));
    let request = upstream.next_request().await;
    assert_eq!(request.path, "/audio/speech");
    assert_eq!(
        request.json(),
        json!({
            "model": "voice-1", "input": "Grüße", "voice": { "id": "voice_1" }, "instructions": "Whisper.",
            "response_format": "opus", "speed": 1.5, "seed": 1,
        })
    );

    // As events, which the client may want although the provider sends bytes.
    let body =
        json!({ "model": "voice", "input": "Hello", "voice": "alloy", "stream_format": "sse" });
    upstream.will(recording(b"abc"));
    let events = client.follow(Method::POST, SPEECH, &body).await;
    let events = events.rest().await;
    let events: Vec<Value> = events
        .iter()
        .map(|event| event.strip_prefix("data: ").expect("data"))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    let (done, pieces) = events.split_last().expect("events");
    let audio: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| {
            let audio = piece["audio"].as_str().expect("a text");
            STANDARD.decode(audio).expect("base64")
        })
        .collect();
    assert_eq!(audio, b"abc");
    assert_eq!(done["type"], "speech.audio.done");
    // Characters are no tokens.
    assert_eq!(done["usage"]["input_tokens"], 0);
}

#[tokio::test]
async fn events_of_a_provider_become_bytes_and_report_tokens() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let body = json!({ "model": "voice-tokens", "input": "Hello", "voice": "alloy" });
    let said = [
        r#"{"type":"speech.audio.delta","audio":"YWI="}"#,
        r#"{"type":"speech.audio.delta","audio":"Yw=="}"#,
        r#"{"type":"speech.audio.done","usage":{"input_tokens":4,"output_tokens":30,"total_tokens":34}}"#,
    ];
    upstream.will(Reply::events(said));
    let spoken = client.post(SPEECH, &body).await;
    assert_eq!(spoken.status, 200, "{}", spoken.text());
    assert_eq!(&spoken.body[..], b"abc");
    assert_eq!(upstream.next_request().await.json()["stream_format"], "sse");
    // 4 tokens at 1 USD and 30 at 10 USD a million, times 1.4.
    assert_eq!(ended(&client).await, settled(0.425_6));
    // Without a report: 2 tokens of text, and 1.5 for each character.
    let without = [said[0], r#"{"type":"speech.audio.done"}"#];
    upstream.will(Reply::events(without));
    assert_eq!(client.post(SPEECH, &body).await.status, 200);
    assert_eq!(ended(&client).await, settled((2.0 + 80.0) * 0.001_4));
}

#[tokio::test]
async fn each_piece_of_a_recording_arrives_at_once() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let gate = Gate::new();
    upstream.will(
        recording(b"firstsecond")
            .split_at([5])
            .gate_before_piece(1, &gate),
    );
    let body = json!({ "model": "voice", "input": "Hello", "voice": "alloy" });
    let mut spoken = client.follow(Method::POST, SPEECH, &body).await;
    assert_eq!(spoken.next_bytes().await.as_deref(), Some(&b"first"[..]));
    gate.open();
    assert_eq!(spoken.next_bytes().await.as_deref(), Some(&b"second"[..]));
    assert_eq!(spoken.next_bytes().await, None);
    assert_eq!(ended(&client).await, settled(0.14));
}

#[tokio::test]
async fn a_recording_that_breaks_off_breaks_the_connection_and_is_paid() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let body = json!({ "model": "voice", "input": "Hello", "voice": "alloy" });
    let bytes = vec![7; 1_000];
    upstream.will(recording(&bytes).chunked().cut_after(400));
    assert!(client.try_post(SPEECH, &body).await.is_none());
    assert_eq!(ended(&client).await, settled(0.14));

    // Before the first byte, weir tells the error, and charges nothing.
    let error = json!({ "error": { "message": "no", "type": "server_error" } });
    for (status, reply) in [
        (502, Reply::json(200, &error)),
        (503, Reply::json(500, &error)),
        (502, recording(b"")),
    ] {
        upstream.always(reply);
        let refused = client.post(SPEECH, &body).await;
        assert_eq!(refused.status, status, "{}", refused.text());
        assert_eq!(ended(&client).await.0, "released");
    }
}

#[tokio::test]
async fn words_are_paid_by_the_second_of_their_recording() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let file = wav(3);
    let fields = [
        ("model", "ear"),
        ("language", "en"),
        ("prompt", "weir, \"gateway\""),
        ("temperature", "0.5"),
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "word"),
        ("keywords[]", "weir"),
        ("keywords[]", "dam"),
    ];
    let verbose = json!({
        "task": "transcribe", "language": "english", "duration": 3.0, "text": "A weir.",
        "segments": [{ "id": 0, "start": 0.0, "end": 3.0, "text": "A weir." }],
        "words": [{ "word": "A", "start": 0.0, "end": 1.0 }],
        "usage": { "type": "duration", "seconds": 900 },
    });
    upstream.will(Reply::json(200, &verbose));
    let heard = transcribe(&client, TRANSCRIPTIONS, form(&file, &fields)).await;
    assert_eq!(heard.status, 200, "{}", heard.text());
    let mut expected = verbose.clone();
    // A report of a quarter of an hour for three seconds is not believed.
    expected["usage"] = json!({ "type": "duration", "seconds": 3, "credits": 42 });
    assert_eq!(heard.json(), expected);
    assert_eq!(ended(&client).await, settled(42.0));

    let request = upstream.next_request().await;
    assert_eq!(request.path, "/audio/transcriptions");
    let content_type = request.header("content-type").expect("a form");
    let boundary = content_type.split_once("boundary=").expect("a boundary").1;
    let field = |name: &str, text: &str| {
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
    };
    let mut expected = [
        ("model", "ear-1"),
        ("response_format", "verbose_json"),
        ("language", "en"),
        ("prompt", "weir, \"gateway\""),
        ("temperature", "0.5"),
        ("timestamp_granularities[]", "word"),
        ("keywords[]", "weir"),
        ("keywords[]", "dam"),
    ]
    .map(|(name, text)| field(name, text))
    .concat()
    .into_bytes();
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"said.wav\"\r\n\
         Content-Type: audio/wav\r\n\r\n"
    );
    expected.extend_from_slice(head.as_bytes());
    expected.extend_from_slice(&file);
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&request.body), text(&expected));
}

#[tokio::test]
async fn a_transcript_has_each_format() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let subtitles = "1\n00:00:00,000 --> 00:00:01,000\nA weir.\n\n";
    for (format, reply, expected, content_type) in [
        (
            "text",
            Reply::json(200, &json!({ "text": "A weir." })),
            "A weir.\n",
            "text/plain; charset=utf-8",
        ),
        (
            "srt",
            Reply::new(200)
                .header("content-type", "text/plain")
                .body(subtitles),
            subtitles,
            "text/plain; charset=utf-8",
        ),
        (
            "vtt",
            Reply::new(200).body("WEBVTT\n\n"),
            "WEBVTT\n\n",
            "text/plain; charset=utf-8",
        ),
    ] {
        upstream.will(reply);
        let fields = [("model", "ear"), ("response_format", format)];
        let heard = transcribe(&client, TRANSCRIPTIONS, form(&wav(1), &fields)).await;
        assert_eq!(heard.status, 200, "{format}: {}", heard.text());
        assert_eq!(heard.text(), expected, "{format}");
        assert_eq!(heard.headers["content-type"], content_type);
        assert_eq!(ended(&client).await, settled(14.0));
    }
    // A repeated request with a key has the same form.
    let keyed = gateway.client().with_header("idempotency-key", "k-1");
    upstream.will(Reply::json(200, &json!({ "text": "A weir." })));
    let fields = [("model", "ear"), ("response_format", "text")];
    for _ in 0..2 {
        let heard = transcribe(&keyed, TRANSCRIPTIONS, form(&wav(1), &fields)).await;
        assert_eq!(heard.text(), "A weir.\n");
        assert_eq!(heard.headers["content-type"], "text/plain; charset=utf-8");
    }
    assert_eq!(upstream.requests().len(), 4);
}

#[tokio::test]
async fn a_transcript_is_streamed_and_paid_by_token() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let usage = json!({
        "type": "tokens", "input_tokens": 30, "output_tokens": 5, "total_tokens": 35,
        "input_token_details": { "text_tokens": 2, "audio_tokens": 28 },
    });
    let done =
        json!({ "type": "transcript.text.done", "text": "A weir.", "usage": usage }).to_string();
    upstream.will(Reply::events([
        r#"{"type":"transcript.text.delta","delta":"A "}"#,
        r#"{"type":"transcript.text.delta","delta":"weir."}"#,
        &done,
        // Nothing belongs there.
        r#"{"type":"transcript.text.delta","delta":"late"}"#,
    ]));
    let fields = [("model", "ear-tokens"), ("stream", "true")];
    let heard = transcribe(&client, TRANSCRIPTIONS, form(&wav(2), &fields)).await;
    assert_eq!(heard.status, 200, "{}", heard.text());
    let text = heard.text();
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    assert_eq!(
        events[0],
        json!({ "type": "transcript.text.delta", "delta": "A " })
    );
    let mut expected = json!({ "type": "transcript.text.done", "text": "A weir.", "usage": usage });
    expected["usage"]["credits"] = json!(0.154);
    assert_eq!(events.last(), Some(&expected));
    // 30 tokens at 2 USD and 5 at 10 USD a million, times 1.4.
    assert_eq!(ended(&client).await, settled(0.154));

    // A model without streams responds at once; a stream that breaks off is an error.
    upstream.will(Reply::json(
        200,
        &json!({ "text": "A weir.", "usage": usage }),
    ));
    let heard = transcribe(&client, TRANSCRIPTIONS, form(&wav(2), &fields)).await;
    assert!(
        heard.text().contains("transcript.text.done"),
        "{}",
        heard.text()
    );
    upstream.will(Reply::events([
        r#"{"type":"transcript.text.delta","delta":"A "}"#,
    ]));
    let heard = transcribe(&client, TRANSCRIPTIONS, form(&wav(2), &fields)).await;
    assert!(heard.text().contains("event: error"), "{}", heard.text());
}

#[tokio::test]
async fn texts_are_judged_and_a_wrong_number_of_verdicts_costs_nothing() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let verdict = json!({
        "flagged": true, "categories": { "violence": true }, "category_scores": { "violence": 0.9 },
        "category_applied_input_types": { "violence": ["text"] },
    });
    let body = json!({ "model": "judge", "input": ["12345678", "1234"] });
    let answer = json!({ "id": "modr-1", "model": "judge-1", "results": [verdict, verdict] });
    upstream.will(Reply::json(200, &answer));
    let judged = client.post(MODERATIONS, &body).await;
    assert_eq!(judged.status, 200, "{}", judged.text());
    assert_eq!(judged.json()["results"], json!([verdict, verdict]));
    // Twelve bytes are three tokens.
    assert_eq!(ended(&client).await, settled(0.008_4));
    let request = upstream.next_request().await;
    assert_eq!(request.path, "/moderations");
    assert_eq!(
        request.json(),
        json!({ "model": "judge-1", "input": ["12345678", "1234"] })
    );
    for results in [
        json!([verdict]),
        json!([verdict, {}]),
        json!([]),
        Value::Null,
    ] {
        upstream.will(Reply::json(200, &json!({ "results": results })));
        let refused = client.post(MODERATIONS, &body).await;
        assert_eq!(refused.status, 502, "{}", refused.text());
        assert_eq!(ended(&client).await.0, "released");
    }
}

#[tokio::test]
async fn a_request_of_another_kind_or_length_is_refused_by_field() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream).start().await;
    let client = gateway.client();
    let speech = |model: &str, input: &str| json!({ "model": model, "input": input, "voice": "v" });
    let long = "x".repeat(101);
    for (path, body, code, param) in [
        (
            SPEECH,
            speech("voice", &long),
            "CONTEXT_LENGTH_EXCEEDED",
            "input",
        ),
        (
            SPEECH,
            speech("voice-tokens", &long.repeat(4)),
            "CONTEXT_LENGTH_EXCEEDED",
            "input",
        ),
        (SPEECH, speech("ear", "a"), "MODEL_NOT_SUPPORTED", "model"),
        (SPEECH, speech("demo", "a"), "MODEL_NOT_SUPPORTED", "model"),
        (
            MODERATIONS,
            json!({ "model": "voice", "input": "a" }),
            "MODEL_NOT_SUPPORTED",
            "model",
        ),
        (
            MODERATIONS,
            json!({ "model": "judge", "input": ["a", long.repeat(4)] }),
            "CONTEXT_LENGTH_EXCEEDED",
            "input[1]",
        ),
    ] {
        let refused = client.post(path, &body).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text());
        let error = &refused.json()["error"];
        assert_eq!(
            (&error["weir_code"], &error["param"]),
            (&json!(code), &json!(param))
        );
    }
    let cut = &wav(2)[..20];
    for (file, model, code, param) in [
        (&wav(61)[..], "ear", "CONTEXT_LENGTH_EXCEEDED", "file"),
        (&wav(26), "ear-tokens", "CONTEXT_LENGTH_EXCEEDED", "file"),
        (b"no sound", "ear", "INVALID_REQUEST", "file"),
        (cut, "ear", "INVALID_REQUEST", "file"),
        (&wav(1), "voice", "MODEL_NOT_SUPPORTED", "model"),
    ] {
        let refused = transcribe(&client, TRANSCRIPTIONS, form(file, &[("model", model)])).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        let error = &refused.json()["error"];
        assert_eq!(
            (&error["weir_code"], &error["param"]),
            (&json!(code), &json!(param))
        );
    }
    let json = client.post(TRANSCRIPTIONS, &json!({})).await;
    assert_eq!(json.status, 415, "{}", json.text());
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn filters_guard_what_is_spoken_and_heard() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of(&upstream)
        .tables("[[filters]]\nslot = \"redact-pii\"\noptions = { unread = \"audio\" }\n")
        .start()
        .await;
    let client = gateway.client();
    upstream.will(recording(b"abc"));
    let body = json!({ "model": "voice", "input": "Write to ann@example.com", "voice": "v" });
    assert_eq!(client.post(SPEECH, &body).await.status, 200);
    let sent = upstream.next_request().await.json();
    assert!(!sent.to_string().contains("ann@example.com"), "{sent}");

    upstream.will(Reply::json(200, &json!({ "text": "A weir." })));
    let fields = [("model", "ear"), ("prompt", "ann@example.com")];
    let heard = transcribe(&client, TRANSCRIPTIONS, form(&wav(1), &fields)).await;
    assert_eq!(heard.status, 200, "{}", heard.text());
    let sent = upstream.next_request().await;
    let sent = String::from_utf8_lossy(&sent.body).into_owned();
    assert!(!sent.contains("ann@example.com"), "{sent}");
}

#[tokio::test]
async fn a_catalog_with_a_price_of_another_unit_is_refused() {
    let upstream = Upstream::start().await;
    for (kind, price, part) in [
        ("speech", "minute = 1", "prices of a unit"),
        ("transcription", "characters = 1", "prices of a unit"),
        ("embeddings", "characters = 1", "prices of a unit"),
        ("speech", "characters = 1, input = 1", "both a price"),
        ("speech", "input = 1, output = 1", "max_output_tokens"),
    ] {
        let table = format!(
            "[models.odd]\nkind = \"{kind}\"\ncontext_window = 10\nprice = {{ {price} }}\n\
             upstreams = [{{ provider = \"scripted\" }}]\n"
        );
        let refused = gateway_of(&upstream).tables(&table).try_start().await;
        let refused = refused.err().map(|error| format!("{error:#}"));
        let refused = refused.unwrap_or_default();
        assert!(refused.contains(part), "{kind}, {price}: {refused}");
    }
}
