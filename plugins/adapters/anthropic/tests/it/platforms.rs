//! Claude on Vertex AI and Amazon Bedrock: paths, bodies, streams and errors.
//!
//! Shapes: anthropic 2.14.0 (PyPI), `lib/vertex/_client.py`, `lib/bedrock/_client.py`, `lib/bedrock/_stream_decoder.py`;
//! `ResponseStream` of `bedrock-runtime` in botocore 1.44.8.

use serde_json::json;
use weir_adapter_anthropic::translate::Anthropic;
use weir_sdk::adapter::{FailureKind, Request, Setting};
use weir_sdk::chat::{ChatRequest, Source};
use weir_sdk::testing::{
    AWS_STREAM, JSON, SentRequest, aws_message, chat, failure, image, lines, message, pair,
    receive, request, request_of_same_dialect, send, streamed,
};

const HAIKU: &str = "eu.anthropic.claude-haiku-4-5-20251001-v1:0";

const PROFILE: &str =
    "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/a1b2c3";

fn on(platform: &str, request: Request) -> SentRequest {
    send::<Anthropic>(request, &[pair("platform", platform)]).expect("a request")
}

fn of(model: &str, stream: bool) -> ChatRequest {
    ChatRequest {
        model: model.to_owned(),
        stream,
        ..chat("hello")
    }
}

/// A request of a client of this dialect with these headers.
fn with_headers(headers: &[(&str, &str)]) -> Request {
    let mut request = request_of_same_dialect::<Anthropic>(of(HAIKU, false));
    request.client.headers = headers
        .iter()
        .map(|(name, value)| pair(name, value))
        .collect();
    request
}

#[test]
fn vertex_has_the_model_in_the_path_and_the_version_in_the_body() {
    let sent = on("vertex", request(of("claude-haiku-4-5@20251001", false)));
    assert_eq!(sent.path, "/models/claude-haiku-4-5@20251001:rawPredict");
    assert_eq!(sent.headers, [pair("content-type", "application/json")]);
    assert_eq!(
        sent.body,
        json!({
            "anthropic_version": "vertex-2023-10-16", "max_tokens": 100,
            "messages": [{ "role": "user", "content": "hello" }],
        })
    );
    let sent = on("vertex", request(of("a/../b;c", true)));
    assert_eq!(sent.path, "/models/a%2F..%2Fb%3Bc:streamRawPredict");
    assert_eq!(sent.body["stream"], true);
}

#[test]
fn bedrock_has_model_and_stream_in_the_path_and_version_and_betas_in_the_body() {
    let sent = on("bedrock", request(of(HAIKU, false)));
    assert_eq!(
        sent.path,
        "/model/eu.anthropic.claude-haiku-4-5-20251001-v1%3A0/invoke"
    );
    assert_eq!(sent.headers, [pair("content-type", "application/json")]);
    assert_eq!(
        sent.body,
        json!({
            "anthropic_version": "bedrock-2023-05-31", "max_tokens": 100,
            "messages": [{ "role": "user", "content": "hello" }],
        })
    );
    let betas: [Setting; 2] = [pair("platform", "bedrock"), pair("betas", "a-1, b-2")];
    let sent = send::<Anthropic>(request(of(PROFILE, true)), &betas).expect("a request");
    assert_eq!(
        sent.path,
        "/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A123456789012%3Aapplication-inference-profile%2Fa1b2c3\
         /invoke-with-response-stream"
    );
    assert_eq!(sent.body["anthropic_beta"], json!(["a-1", "b-2"]));
    assert_eq!(sent.body.get("stream"), None);
}

#[test]
fn a_client_of_this_dialect_chooses_its_version_and_betas_on_each_platform() {
    let headers = [
        ("anthropic-version", "2026-10-21"),
        ("anthropic-beta", "interleaved-thinking-2025-05-14, x-1"),
    ];
    let known = "interleaved-thinking-2025-05-14";
    let sent = on("vertex", with_headers(&headers));
    assert_eq!(sent.body["anthropic_version"], "2026-10-21");
    assert_eq!(sent.body.get("anthropic_beta"), None);
    assert!(sent.headers.contains(&pair("anthropic-beta", known)));
    // The platform would refuse the whole request.
    assert_eq!(sent.ignored, ["anthropic-beta:x-1"]);
    let sent = on("bedrock", with_headers(&headers));
    assert_eq!(sent.body["anthropic_version"], "2026-10-21");
    assert_eq!(sent.body["anthropic_beta"], json!([known]));
    assert_eq!(sent.ignored, ["anthropic-beta:x-1"]);
    let renamed = with_headers(&[("anthropic-beta", "advanced-tool-use-2025-11-20")]);
    let sent = on("bedrock", renamed);
    assert_eq!(
        sent.body["anthropic_beta"],
        json!(["tool-search-tool-2025-10-19"])
    );
    let sent = on(
        "bedrock",
        with_headers(&[("anthropic-version", "2023-06-01")]),
    );
    assert_eq!(sent.body["anthropic_version"], "bedrock-2023-05-31");
    // Elsewhere, neither is in the body, also if the client writes it there.
    let mut own = with_headers(&headers);
    let sent = on("anthropic", own.clone());
    assert!(
        sent.headers
            .contains(&pair("anthropic-version", "2026-10-21"))
    );
    assert_eq!(sent.body.get("anthropic_version"), None);
    let weir_sdk::adapter::Task::Chat(chat) = &mut own.task else {
        panic!("a chat")
    };
    chat.extra = vec![pair("anthropic_version", "\"x\"")];
    let refused = send::<Anthropic>(own, &[]).expect_err("a refusal");
    assert_eq!(refused.param.as_deref(), Some("anthropic_version"));
}

#[test]
fn attachments_go_to_each_platform() {
    let with_image = || {
        let user = message(
            weir_sdk::chat::Role::User,
            vec![image(Source::Attachment(0))],
        );
        request(weir_sdk::testing::with_messages(vec![user]))
    };
    for platform in ["vertex", "bedrock"] {
        let sent = on(platform, with_image());
        assert_eq!(
            sent.body["messages"][0]["content"][0]["source"]["data"],
            "<0>"
        );
    }
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for piece in text.as_bytes().chunks(3) {
        let bits = piece
            .iter()
            .fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte))
            << (8 * (3 - piece.len()));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            encoded.push(if at <= piece.len() { digit.into() } else { '=' });
        }
    }
    encoded
}

fn chunk(event: &str) -> Vec<u8> {
    let headers = [
        (":event-type", "chunk"),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    let payload = json!({ "bytes": base64(event), "p": "abcdefgh" });
    aws_message(&headers, payload.to_string().as_bytes())
}

fn stream() -> Vec<u8> {
    [
        r#"{"type":"message_start","message":{"id":"msg_bdrk_1","type":"message","role":"assistant","model":"claude-test-1","content":[],"usage":{"input_tokens":12,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Größe"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#,
        r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":12,"outputTokenCount":7,"invocationLatency":900,"firstByteLatency":200}}"#,
    ]
    .map(chunk)
    .concat()
}

#[test]
fn reads_bedrocks_stream_wherever_it_is_cut() {
    let stream = stream();
    let whole = receive::<Anthropic>(streamed(""), 200, AWS_STREAM, [&stream[..]]);
    assert_eq!(whole.1, Ok(()));
    assert_eq!(
        lines(&whole.0),
        [
            "started msg_bdrk_1 claude-test-1",
            "usage in=12 out=1",
            "0 text",
            "0: Größe",
            "0 ends",
            "usage in=12 out=7",
            "finish Stop",
        ]
    );
    for at in 0..=stream.len() {
        let (first, second) = stream.split_at(at);
        let cut = receive::<Anthropic>(streamed(""), 200, AWS_STREAM, [first, second]);
        assert_eq!(cut, whole, "cut at byte {at}");
    }
    let bytes = receive::<Anthropic>(streamed(""), 200, AWS_STREAM, stream.chunks(1));
    assert_eq!(bytes, whole);
    // A wrong content type does not matter.
    let mislabelled = receive::<Anthropic>(streamed(""), 200, JSON, [&stream[..]]);
    assert_eq!(mislabelled, whole);
}

#[test]
fn takes_no_beginning_of_bedrocks_stream_for_the_whole() {
    let stream = stream();
    let last = chunk(r#"{"type":"message_stop"}"#).len();
    for end in 0..stream.len() - last {
        let (_, result) = receive::<Anthropic>(streamed(""), 200, AWS_STREAM, [&stream[..end]]);
        if let Err(failure) = result {
            assert_eq!(failure.kind, FailureKind::Malformed, "cut off at {end}");
        } else {
            // Only the last event is missing, which says nothing new.
            assert!(end > stream.len() - 400, "cut off at {end}");
        }
    }
}

#[test]
fn an_exception_in_bedrocks_stream_is_its_failure() {
    for (exception, message, kind) in [
        (
            "throttlingException",
            "Too many requests",
            FailureKind::RateLimited,
        ),
        (
            "modelStreamErrorException",
            "It broke.",
            FailureKind::Unavailable,
        ),
        (
            "internalServerException",
            "It broke.",
            FailureKind::Unavailable,
        ),
        (
            "validationException",
            "Input is too long",
            FailureKind::ContextLength,
        ),
    ] {
        let headers = [
            (":exception-type", exception),
            (":content-type", "application/json"),
            (":message-type", "exception"),
        ];
        let payload = json!({ "message": message }).to_string();
        let stream = [
            chunk(r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"So"}}"#),
            aws_message(&headers, payload.as_bytes()),
        ]
        .concat();
        let (events, result) = receive::<Anthropic>(streamed(""), 200, AWS_STREAM, [&stream[..]]);
        assert_eq!(lines(&events), ["0 text", "0: So"]);
        let failure = result.expect_err("a failure");
        assert_eq!((failure.kind, &*failure.text), (kind, message));
        assert_eq!(failure.code.as_deref(), Some(exception));
    }
}

#[test]
fn tells_the_platforms_refusals_apart() {
    let aws = |name| {
        [
            ("content-type", "application/json"),
            ("x-amzn-errortype", name),
        ]
    };
    let said = |message: &str| json!({ "message": message }).to_string();
    let google = |status: u16, name: &str, message: &str| {
        json!({ "error": { "code": status, "message": message, "status": name } }).to_string()
    };
    for (status, headers, body, kind) in [
        (
            429,
            &aws("ThrottlingException")[..],
            said("Too many tokens, please wait"),
            FailureKind::RateLimited,
        ),
        (
            400,
            &aws("ValidationException:http://internal.amazon.com/coral/"),
            said("The provided model identifier is invalid."),
            FailureKind::ModelNotFound,
        ),
        (
            403,
            &aws("UnrecognizedClientException"),
            said("The security token included in the request is invalid."),
            FailureKind::Unauthorized,
        ),
        (
            404,
            JSON,
            google(
                404,
                "NOT_FOUND",
                "Publisher Model `projects/p/locations/l/publishers/anthropic/models/m` was not found or your project does not have access to it.",
            ),
            FailureKind::ModelNotFound,
        ),
        (
            429,
            JSON,
            google(429, "RESOURCE_EXHAUSTED", "Quota exceeded"),
            FailureKind::RateLimited,
        ),
    ] {
        assert_eq!(
            failure::<Anthropic>(status, headers, &body).kind,
            kind,
            "{body}"
        );
    }
}
