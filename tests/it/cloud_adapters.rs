//! Models of clouds: the paths, credentials and streams of Azure OpenAI, Vertex AI and Amazon Bedrock, through a gateway.
//!
//! Shapes: openai 3.57.0 `lib/azure.py`; google-genai 3.6.1 `models.py`; anthropic 2.14.0 `lib/vertex` and `lib/bedrock`;
//! `bedrock-runtime` in botocore 1.44.8 (all PyPI).

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::gateway::Builder;
use tests::scenario::aws_stream;
use tests::{Gateway, Reply, Upstream, chat};

const SECRET: &str = "secret-of-the-operator-0123456789";

const HAIKU: &str = "eu.anthropic.claude-haiku-4-5-20251001-v1:0";

/// A gateway whose model `cloud` has this name at its upstream.
fn cloud(upstream: &Upstream, adapter: &str, path: &str, model: &str, settings: &str) -> Builder {
    Gateway::builder().tables(&format!(
        "[providers.cloud]\nadapter = {adapter:?}\nbase_url = \"{}{path}\"\n{settings}\n\
         [models.cloud]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
         price = {{ input = 1, output = 2 }}\nsupports_tools = true\n\
         upstreams = [{{ provider = \"cloud\", model = {model:?} }}]\n",
        upstream.base_url(),
    ))
}

/// A source of a secret, within a folder that lives as long as the gateway.
fn secret(folder: &TempDir, name: &str, text: &str) -> String {
    let file = folder.path().join(name);
    fs::write(&file, text).expect("the folder can be written");
    format!("{{ file = {file:?} }}")
}

fn fixed(folder: &TempDir, slot: &str) -> String {
    let source = secret(folder, "key", SECRET);
    format!("credential = {source}\ncredential_slot = {slot}")
}

fn aws(folder: &TempDir) -> String {
    format!(
        "credential = {{ aws = {{ region = \"eu-central-1\", access_key_id = {}, secret_access_key = {} }} }}",
        secret(folder, "id", "AKIDEXAMPLE01234"),
        secret(folder, "secret", SECRET),
    )
}

fn streamed(text: &str) -> Value {
    let mut body = chat("cloud", text);
    body["stream"] = true.into();
    body
}

#[tokio::test]
async fn a_deployment_of_azure_is_asked_by_its_path_with_its_key() {
    let folder = TempDir::new().expect("a folder");
    let upstream = Upstream::start().await;
    let settings = fixed(&folder, "{ header = \"api-key\" }")
        + "\noptions = { azure-api-version = \"2024-10-21\" }";
    let gateway = cloud(&upstream, "openai", "/openai", "my-gpt", &settings);
    let gateway = gateway.start().await;
    let client = gateway.client();
    let filters = json!({ "hate": { "filtered": false, "severity": "safe" } });
    upstream.will(Reply::events([
        json!({ "id": "", "model": "", "choices": [], "prompt_filter_results": [{ "prompt_index": 0, "content_filter_results": filters }] }).to_string(),
        json!({ "id": "c-1", "model": "gpt-4.1", "choices": [{ "index": 0, "delta": { "content": "Hi" }, "content_filter_results": filters, "finish_reason": null }] }).to_string(),
        json!({ "id": "c-1", "model": "gpt-4.1", "choices": [{ "index": 0, "delta": {}, "content_filter_results": {}, "finish_reason": "stop" }] }).to_string(),
        // The asynchronous filter's chunk, which has no delta.
        json!({ "id": "", "model": "", "choices": [{ "index": 0, "finish_reason": null, "content_filter_results": filters, "content_filter_offsets": { "check_offset": 0, "start_offset": 0, "end_offset": 2 } }] }).to_string(),
        json!({ "id": "c-1", "model": "gpt-4.1", "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 1 } }).to_string(),
        "[DONE]".to_owned(),
    ]));
    let answer = client.post("/chat", &streamed("Hi")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(
        answer.text().contains("\"content\":\"Hi\""),
        "{}",
        answer.text()
    );
    let sent = upstream.next_request().await;
    assert_eq!(
        sent.path,
        "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"
    );
    assert_eq!(sent.header("api-key"), Some(SECRET));
    assert_eq!(sent.header("authorization"), None);
    upstream.will(Reply::json(
        400,
        &json!({ "error": {
            "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            "type": null, "param": "prompt", "code": "content_filter", "status": 400,
            "innererror": { "code": "ResponsibleAIPolicyViolation", "content_filter_result": filters },
        } }),
    ));
    let refused = client.post("/chat", &chat("cloud", "Hi")).await;
    refused.error(400, "CONTENT_FILTERED");
}

#[tokio::test]
async fn azures_newer_paths_need_only_a_base_url() {
    let folder = TempDir::new().expect("a folder");
    for (api, path) in [
        ("chat-completions", "/openai/v1/chat/completions"),
        ("responses", "/openai/v1/responses"),
    ] {
        let upstream = Upstream::start().await;
        upstream.always_by(|request| match request.path.ends_with("/responses") {
            false => Reply::chat("Hi"),
            true => Reply::json(
                200,
                &json!({
                    "id": "resp_1", "object": "response", "model": "m", "status": "completed",
                    "content_filters": [{ "blocked": false, "source_type": "prompt" }],
                    "output": [{ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Hi", "annotations": [] }] }],
                    "usage": { "input_tokens": 3, "output_tokens": 1 },
                }),
            ),
        });
        let settings = fixed(&folder, "{ header = \"api-key\" }")
            + &format!("\noptions = {{ api = {api:?} }}");
        let gateway = cloud(&upstream, "openai", "/openai/v1", "my-gpt", &settings);
        let gateway = gateway.start().await;
        let answer = gateway.client().post("/chat", &chat("cloud", "Hi")).await;
        assert_eq!(answer.content(), "Hi");
        let sent = upstream.next_request().await;
        assert_eq!(sent.path, path);
        assert_eq!(sent.json()["model"], "my-gpt");
        assert_eq!(sent.header("api-key"), Some(SECRET));
    }
}

#[tokio::test]
async fn gemini_on_vertex_needs_only_a_base_url_and_a_bearer_token() {
    const PROJECT: &str = "/v1/projects/my-project/locations/europe-west4/publishers/google";
    let folder = TempDir::new().expect("a folder");
    let upstream = Upstream::start().await;
    let settings = fixed(&folder, "\"bearer\"");
    let gateway = cloud(&upstream, "gemini", PROJECT, "gemini-2.5-flash", &settings);
    let gateway = gateway.start().await;
    let client = gateway.client();
    let answer = json!({
        "candidates": [{ "content": { "role": "model", "parts": [{ "text": "Hi" }] }, "finishReason": "STOP", "avgLogprobs": -0.1 }],
        "usageMetadata": {
            "promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 4, "trafficType": "ON_DEMAND",
            "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": 3 }],
        },
        "modelVersion": "gemini-2.5-flash", "createTime": "2026-11-24T12:00:00.000000Z", "responseId": "r-1",
    });
    let system = json!({ "role": "system", "content": "Be brief." });
    for (stream, method) in [
        (false, "generateContent"),
        (true, "streamGenerateContent?alt=sse"),
    ] {
        upstream.will(match stream {
            false => Reply::json(200, &answer),
            true => Reply::events([answer.to_string()]),
        });
        let mut body = chat("cloud", "Hi");
        body["stream"] = stream.into();
        body["messages"] = json!([system, { "role": "user", "content": "Hi" }]);
        let told = client.post("/chat", &body).await;
        assert_eq!(told.status, 200, "{}", told.text());
        let sent = upstream.next_request().await;
        assert_eq!(
            sent.path,
            format!("{PROJECT}/models/gemini-2.5-flash:{method}")
        );
        assert_eq!(
            sent.header("authorization"),
            Some(&*format!("Bearer {SECRET}"))
        );
        assert_eq!(sent.header("x-goog-api-key"), None);
        // Vertex requires a role of each content.
        assert_eq!(sent.json()["contents"][0]["role"], "user");
    }
    upstream.will(Reply::json(
        404,
        &json!({ "error": { "code": 404, "status": "NOT_FOUND", "message": "Publisher Model `x` was not found or your project does not have access to it." } }),
    ));
    let unknown = client.post("/chat", &chat("cloud", "Hi")).await;
    unknown.error(502, "UPSTREAM_ERROR");
}

fn message() -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5",
        "content": [{ "type": "text", "text": "Hi" }], "stop_reason": "end_turn",
        "usage": { "input_tokens": 3, "output_tokens": 1 },
    })
}

fn message_events() -> [Value; 6] {
    [
        json!({ "type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5", "content": [],
            "usage": { "input_tokens": 3, "output_tokens": 1 },
        } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "Hi" } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 1 } }),
        json!({ "type": "message_stop" }),
    ]
}

#[tokio::test]
async fn claude_on_vertex_is_asked_by_its_path() {
    const PROJECT: &str = "/v1/projects/my-project/locations/europe-west1/publishers/anthropic";
    let folder = TempDir::new().expect("a folder");
    let upstream = Upstream::start().await;
    let settings = fixed(&folder, "\"bearer\"") + "\noptions = { platform = \"vertex\" }";
    let model = "claude-haiku-4-5@20251001";
    let gateway = cloud(&upstream, "anthropic", PROJECT, model, &settings);
    let gateway = gateway.start().await;
    for (stream, method) in [(false, "rawPredict"), (true, "streamRawPredict")] {
        upstream.will(match stream {
            false => Reply::json(200, &message()),
            true => Reply::events(message_events().iter().map(Value::to_string)),
        });
        let mut body = chat("cloud", "Hi");
        body["stream"] = stream.into();
        let told = gateway.client().post("/chat", &body).await;
        assert_eq!(told.status, 200, "{}", told.text());
        let sent = upstream.next_request().await;
        assert_eq!(sent.path, format!("{PROJECT}/models/{model}:{method}"));
        assert_eq!(
            sent.header("authorization"),
            Some(&*format!("Bearer {SECRET}"))
        );
        assert_eq!(sent.header("x-api-key"), None);
        let sent = sent.json();
        assert_eq!(sent["anthropic_version"], "vertex-2023-10-16");
        assert_eq!(sent.get("model"), None);
    }
}

#[tokio::test]
async fn claude_on_bedrock_is_signed_and_streams_in_amazons_framing() {
    let folder = TempDir::new().expect("a folder");
    let upstream = Upstream::start().await;
    let settings = aws(&folder) + "\noptions = { platform = \"bedrock\" }";
    let gateway = cloud(&upstream, "anthropic", "", HAIKU, &settings);
    let gateway = gateway.start().await;
    let client = gateway.client();
    upstream.will(Reply::json(200, &message()));
    let told = client.post("/chat", &chat("cloud", "Hi")).await;
    assert_eq!(told.content(), "Hi");
    let sent = upstream.next_request().await;
    assert_eq!(
        sent.path,
        "/model/eu.anthropic.claude-haiku-4-5-20251001-v1%3A0/invoke"
    );
    let signed = sent.header("authorization").expect("it is signed");
    assert!(
        signed.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE01234/"),
        "{signed}"
    );
    assert_eq!(sent.header("x-api-key"), None);
    let sent = sent.json();
    assert_eq!(sent["anthropic_version"], "bedrock-2023-05-31");
    assert_eq!((sent.get("model"), sent.get("stream")), (None, None));

    let chunk = |event: &Value| {
        let bytes = STANDARD.encode(event.to_string());
        ("chunk", json!({ "bytes": bytes, "p": "abc" }).to_string())
    };
    upstream.will(aws_stream(message_events().iter().map(chunk)).one_byte_at_a_time());
    let told = client.post("/chat", &streamed("Hi")).await;
    assert_eq!(told.status, 200, "{}", told.text());
    assert!(
        told.text().contains("\"content\":\"Hi\""),
        "{}",
        told.text()
    );
    let sent = upstream.next_request().await;
    assert!(
        sent.path.ends_with("/invoke-with-response-stream"),
        "{}",
        sent.path
    );

    upstream.will(
        Reply::json(
            400,
            &json!({ "message": "Input is too long for requested model." }),
        )
        .header("x-amzn-errortype", "ValidationException:http://internal"),
    );
    let refused = client.post("/chat", &chat("cloud", "Hi")).await;
    refused.error(400, "CONTEXT_LENGTH_EXCEEDED");
}
