//! Google's `generateContent` for clients, with providers of the same dialect and of other dialects.

use http::Method;
use serde_json::{Value, json};
use tests::gateway::UPSTREAM_CREDENTIAL;
use tests::{Answer, Gate, Gateway, Reply, Upstream, chunks};

/// An adapter of the client's own dialect, and an adapter of another dialect.
pub(crate) const ADAPTERS: [&str; 2] = ["gemini", "anthropic"];

const GENERATE: &str = "/v1beta/models/scripted:generateContent";
const STREAM: &str = "/v1beta/models/scripted:streamGenerateContent?alt=sse";

/// A request with these additional fields.
fn asked(fields: &Value) -> Value {
    let mut body = json!({
        "contents": [{ "role": "user", "parts": [{ "text": "Hello" }] }],
        "generationConfig": { "maxOutputTokens": 2048 },
        "tools": [{ "functionDeclarations": [{ "name": "look", "parameters": { "type": "OBJECT", "properties": {} } }] }],
    });
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

/// A response of Google's API, in the form of `GenerateContentResponse` in google-genai 3.6.1.
fn generated(parts: &Value, finish: &str) -> Value {
    json!({
        "candidates": [{ "content": { "parts": parts, "role": "model" }, "finishReason": finish, "index": 0 }],
        "usageMetadata": {
            "promptTokenCount": 12, "cachedContentTokenCount": 3, "candidatesTokenCount": 5,
            "thoughtsTokenCount": 2, "totalTokenCount": 19,
        },
        "modelVersion": "gemini-up", "responseId": "up",
    })
}

/// A response with reasoning, a text and a call, all signed where the dialect of the adapter allows it.
pub(crate) fn rich(adapter: &str) -> Reply {
    match adapter {
        "gemini" => Reply::json(200, &generated(&rich_parts(), "STOP")),
        _ => crate::anthropic_messages::rich(adapter),
    }
}

/// The signed parts of Google's API.
fn rich_parts() -> Value {
    json!([
        { "text": "Hm.", "thought": true, "thoughtSignature": "dGhv" },
        { "text": "Hi there", "thoughtSignature": "dGV4" },
        { "functionCall": { "id": "t1", "name": "look", "args": { "at": 1 } }, "thoughtSignature": "Y2Fs" },
        { "functionCall": { "id": "t2", "name": "look", "args": {} } },
    ])
}

/// The response of [`rich`] as a stream.
pub(crate) fn rich_stream(adapter: &str) -> Reply {
    if adapter != "gemini" {
        return crate::anthropic_messages::rich_stream(adapter);
    }
    let part = |part: &str| format!(r#"{{"candidates":[{{"content":{{"parts":[{part}]}}}}]}}"#);
    Reply::events([
        part(r#"{"text":"Hm.","thought":true,"thoughtSignature":"dGhv"}"#),
        part(r#"{"text":"Hi "}"#),
        part(r#"{"text":"there"},{"text":"","thoughtSignature":"dGV4"}"#),
        part(
            r#"{"functionCall":{"id":"t1","name":"look","args":{"at":1}},"thoughtSignature":"Y2Fs"},{"functionCall":{"id":"t2","name":"look","args":{}}}"#,
        ),
        generated(&json!([]), "STOP").to_string(),
    ])
}

/// A response with a text.
pub(crate) fn said(adapter: &str, text: &str) -> Reply {
    match adapter {
        "gemini" => Reply::json(200, &generated(&json!([{ "text": text }]), "STOP")),
        _ => crate::anthropic_messages::said(adapter, text),
    }
}

/// The response of [`said`] as a stream of two pieces.
pub(crate) fn said_stream(adapter: &str, texts: [&str; 2]) -> Reply {
    match adapter {
        "gemini" => Reply::events([
            json!({ "candidates": [{ "content": { "parts": [{ "text": texts[0] }] } }] })
                .to_string(),
            generated(&json!([{ "text": texts[1] }]), "STOP").to_string(),
        ]),
        _ => crate::anthropic_messages::said_stream(adapter, texts),
    }
}

/// A stream that fails after its first text.
pub(crate) fn broken_stream(adapter: &str) -> Reply {
    match adapter {
        "gemini" => Reply::events([
            r#"{"candidates":[{"content":{"parts":[{"text":"So"}]}}]}"#,
            r#"{"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}"#,
        ]),
        _ => crate::anthropic_messages::broken_stream(adapter),
    }
}

/// An error of Google's API.
fn refusal(code: u16, status: &str, message: &str) -> Reply {
    let error = json!({ "error": { "code": code, "message": message, "status": status } });
    Reply::json(code, &error)
}

fn parts(body: &Value) -> &Vec<Value> {
    let parts = &body["candidates"][0]["content"]["parts"];
    parts.as_array().unwrap_or_else(|| panic!("{body}"))
}

/// The parts without signatures.
fn unsigned(parts: &[Value]) -> Vec<Value> {
    let mut parts = parts.to_vec();
    for part in &mut parts {
        part.as_object_mut()
            .expect("a part")
            .remove("thoughtSignature");
    }
    parts
}

fn ok(answer: Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn an_answer_is_the_same_from_upstreams_of_either_dialect_and_costs_what_chat_does() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        let client = gateway.client();
        upstream.will(rich(adapter)).will(rich(adapter));
        let body = ok(client.post(GENERATE, &asked(&json!({}))).await);
        assert_eq!(
            unsigned(parts(&body)),
            [
                json!({ "text": "Hm.", "thought": true }),
                json!({ "text": "Hi there" }),
                json!({ "functionCall": { "id": "t1", "name": "look", "args": { "at": 1 } } }),
                json!({ "functionCall": { "id": "t2", "name": "look", "args": {} } }),
            ],
            "{adapter}"
        );
        assert_eq!(body["candidates"][0]["finishReason"], "STOP");
        assert_eq!(body["modelVersion"], "scripted");
        assert!(body["responseId"].is_string());
        let usage = &body["usageMetadata"];
        assert_eq!(
            (
                &usage["promptTokenCount"],
                &usage["cachedContentTokenCount"]
            ),
            (&json!(12), &json!(3)),
            "{adapter}"
        );
        let total = usage["totalTokenCount"].as_u64();
        assert_eq!(total, Some(19), "{adapter}");
        let chat = json!({
            "model": "scripted", "max_tokens": 2048, "messages": [{ "role": "user", "content": "Hello" }],
        });
        let chat = ok(client.post("/chat", &chat).await);
        assert_eq!(chat["usage"]["credits"], usage["credits"], "{adapter}");
    }
}

#[tokio::test]
async fn a_stream_adds_up_to_the_answer_in_either_form() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        let client = gateway.client();
        upstream.will(rich(adapter));
        let whole = ok(client.post(GENERATE, &asked(&json!({}))).await);
        for path in [STREAM, STREAM.trim_end_matches("?alt=sse")] {
            upstream.will(rich_stream(adapter));
            let stream = client.follow(Method::POST, path, &asked(&json!({}))).await;
            assert_eq!(stream.status, 200);
            let is_list = !path.ends_with("sse");
            let kind = if is_list {
                "application/json"
            } else {
                "text/event-stream"
            };
            assert_eq!(stream.headers["content-type"], kind);
            let chunks = match is_list {
                true => stream
                    .try_json()
                    .await
                    .as_array()
                    .cloned()
                    .unwrap_or_default(),
                false => chunks(&stream.rest().await),
            };
            let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
            for part in chunks.iter().flat_map(parts) {
                let said = part["text"].as_str().unwrap_or_default();
                match part["thought"] == true {
                    true => thought.push_str(said),
                    false => text.push_str(said),
                }
                if part["functionCall"].is_object() {
                    calls.push(part.clone());
                }
            }
            assert_eq!((&*thought, &*text), ("Hm.", "Hi there"), "{adapter} {path}");
            assert_eq!(calls, parts(&whole)[2..], "{adapter} {path}");
            let last = chunks.last().expect("a chunk");
            assert_eq!(last["candidates"][0]["finishReason"], "STOP");
            assert_eq!(
                last["usageMetadata"], whole["usageMetadata"],
                "{adapter} {path}"
            );
        }
    }
}

#[tokio::test]
async fn an_upstream_of_the_same_dialect_is_sent_what_the_client_wrote() {
    let upstream = Upstream::start().await;
    upstream.always(rich("gemini"));
    let gateway = Gateway::with_adapter("gemini", &upstream).await;
    let body = json!({
        "system_instruction": { "parts": [{ "text": "Be brief." }] },
        "contents": [
            { "role": "user", "parts": [
                { "text": "Hello" },
                { "inlineData": { "mimeType": "image/png", "data": "iVBORw0KGgo=" } },
            ] },
            { "role": "model", "parts": [{ "functionCall": { "name": "look", "args": { "a": 1 } } }] },
            { "role": "user", "parts": [{ "functionResponse": { "name": "look", "response": { "result": 5 } } }] },
        ],
        "tools": [{ "functionDeclarations": [{
            "name": "look", "description": "Looks.",
            "parameters": { "type": "OBJECT", "properties": { "a": { "type": "INTEGER" } } },
        }] }],
        "toolConfig": { "functionCallingConfig": { "mode": "ANY", "allowedFunctionNames": ["look"] } },
        "generationConfig": {
            "maxOutputTokens": 100, "topK": 40.0, "stopSequences": ["END"],
            "thinkingConfig": { "thinkingBudget": 64, "includeThoughts": true },
        },
        "safetySettings": [{ "category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE" }],
        "labels": { "team": "a" },
    });
    let answer = gateway.client().post(GENERATE, &body).await;
    assert_eq!(answer.headers.get("x-weir-ignored"), None);
    ok(answer);
    let request = upstream.next_request().await;
    assert_eq!(request.header("x-goog-api-key"), Some(UPSTREAM_CREDENTIAL));
    let sent = request.json();
    for same in ["contents", "safetySettings", "labels"] {
        let mut expected = body[same].clone();
        if same == "contents" {
            // The upstream's placeholder, which version 3 demands of calls without a signature.
            expected[1]["parts"][0]["thoughtSignature"] = "skip_thought_signature_validator".into();
        }
        assert_eq!(sent[same], expected);
    }
    assert_eq!(
        sent["systemInstruction"]["parts"],
        body["system_instruction"]["parts"]
    );
    let function = &sent["tools"][0]["functionDeclarations"][0];
    assert_eq!(
        function["parametersJsonSchema"],
        json!({ "type": "object", "properties": { "a": { "type": "integer" } } })
    );
    assert_eq!(sent["toolConfig"], body["toolConfig"]);
    assert_eq!(
        sent["generationConfig"],
        json!({
            "maxOutputTokens": 100, "topK": 40, "stopSequences": ["END"],
            "thinkingConfig": { "thinkingBudget": 64, "includeThoughts": true },
        })
    );
}

#[tokio::test]
async fn an_upstream_of_another_dialect_is_told_what_it_can_be_and_the_client_what_not() {
    let upstream = Upstream::start().await;
    upstream.always(rich("anthropic"));
    let gateway = Gateway::with_adapter("anthropic", &upstream).await;
    let client = gateway.client();
    let advisory = json!({ "safetySettings": [], "labels": { "a": "b" } });
    let answer = client.post(GENERATE, &asked(&advisory)).await;
    assert_eq!(answer.headers["x-weir-ignored"], "labels, safetySettings");
    ok(answer);
    for (fields, field) in [
        (
            json!({ "cachedContent": "cachedContents/a" }),
            "cachedContent",
        ),
        (
            json!({ "generationConfig": { "maxOutputTokens": 100, "presencePenalty": 0.5 } }),
            "generationConfig.presencePenalty",
        ),
    ] {
        let answer = client.post(GENERATE, &asked(&fields)).await;
        let error = answer.error(400, "UNSUPPORTED_PARAMETER");
        let violation = &error["details"][1]["fieldViolations"][0];
        assert_eq!(violation["field"], field, "{error}");
    }
}

/// A response goes back to the model unchanged, with the results of its calls. Google's SDKs keep the parts of a stream
/// apart.
#[tokio::test]
async fn an_answer_that_is_sent_back_with_results_reaches_its_provider_with_its_signatures() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        let client = gateway.client();
        upstream.will(rich(adapter));
        let whole = ok(client.post(GENERATE, &asked(&json!({}))).await);
        upstream.will(rich_stream(adapter));
        let stream = client
            .follow(Method::POST, STREAM, &asked(&json!({})))
            .await;
        let streamed: Vec<_> = chunks(&stream.rest().await);
        let streamed: Vec<_> = streamed.iter().flat_map(parts).cloned().collect();
        upstream.next_request().await;
        upstream.next_request().await;
        for model in [parts(&whole).clone(), streamed] {
            upstream.will(rich(adapter));
            let result = |id: &str| json!({ "functionResponse": { "id": id, "name": "look", "response": { "output": id } } });
            let again = asked(&json!({ "contents": [
                { "role": "user", "parts": [{ "text": "Hello" }] },
                { "role": "model", "parts": model },
                { "role": "user", "parts": [result("t1"), result("t2")] },
            ] }));
            let answer = client.post(GENERATE, &again).await;
            assert_eq!(answer.headers.get("x-weir-ignored"), None, "{adapter}");
            ok(answer);
            let sent = upstream.next_request().await.json();
            match adapter {
                "gemini" => {
                    let sent = sent["contents"][1]["parts"]
                        .as_array()
                        .expect("parts")
                        .clone();
                    let signed = |part: &&Value| part["thoughtSignature"].is_string();
                    let signatures: Vec<_> = sent
                        .iter()
                        .filter(signed)
                        .map(|part| part["thoughtSignature"].as_str().expect("a text"))
                        .collect();
                    assert_eq!(signatures, ["dGhv", "dGV4", "Y2Fs"]);
                    assert_eq!(sent[0]["text"], "Hm.");
                }
                _ => {
                    let thinking = &sent["messages"][1]["content"][0];
                    assert_eq!(
                        thinking,
                        &json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" })
                    );
                    let results = &sent["messages"][2]["content"];
                    assert_eq!(results[1]["tool_use_id"], "t2");
                }
            }
        }
    }
}

/// A provider rejects signatures of another provider.
#[tokio::test]
async fn a_signature_of_another_provider_is_left_out() {
    let upstream = Upstream::start().await;
    upstream.always(rich("gemini"));
    let of_other = Gateway::builder()
        .provider("other", "gemini", Some(&upstream))
        .model("scripted", &["other"])
        .start()
        .await;
    let whole = ok(of_other.client().post(GENERATE, &asked(&json!({}))).await);
    let gateway = Gateway::with_adapter("gemini", &upstream).await;
    upstream.next_request().await;
    let again = asked(&json!({ "contents": [
        { "role": "user", "parts": [{ "text": "Hello" }] },
        { "role": "model", "parts": parts(&whole)[..2] },
        { "role": "user", "parts": [{ "text": "So?" }] },
    ] }));
    let answer = gateway.client().post(GENERATE, &again).await;
    assert_eq!(answer.headers["x-weir-ignored"], "thought");
    ok(answer);
    let sent = upstream.next_request().await.json();
    assert_eq!(
        sent["contents"][1]["parts"],
        json!([{ "text": "Hi there" }])
    );
}

#[tokio::test]
async fn the_demo_model_chats_streams_and_makes_images() {
    let gateway = Gateway::start().await;
    let client = gateway.client();
    let body = json!({ "contents": [{ "parts": [{ "text": "Hello, weir!" }] }] });
    for path in [
        "/v1beta/models/demo:generateContent",
        "/v1beta/models/models/demo:generateContent",
        "/v1/models/demo:generateContent",
    ] {
        let answer = ok(client.post(path, &body).await);
        assert_eq!(parts(&answer)[0]["text"], "You said: Hello, weir!");
    }
    let image = ok(client
        .post("/v1beta/models/demo-image:generateContent", &body)
        .await);
    let blob = &parts(&image)[0]["inlineData"];
    assert_eq!(blob["mimeType"], "image/png", "{image}");
    assert!(blob["data"].as_str().is_some_and(|data| data.len() > 50));
}

#[tokio::test]
async fn an_idempotency_key_returns_the_same_response() {
    let upstream = Upstream::start().await;
    upstream.will(rich("gemini"));
    let gateway = Gateway::with_adapter("gemini", &upstream).await;
    let client = gateway.client().with_header("idempotency-key", "one");
    let first = ok(client.post(GENERATE, &asked(&json!({}))).await);
    let second = client.post(GENERATE, &asked(&json!({}))).await;
    assert_eq!(second.headers["idempotency-replayed"], "true");
    assert_eq!(ok(second), first);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn each_end_of_an_answer_has_its_reason() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_adapter("gemini", &upstream).await;
    for word in ["STOP", "MAX_TOKENS", "SAFETY"] {
        upstream.will(Reply::json(
            200,
            &generated(&json!([{ "text": "So" }]), word),
        ));
        let body = ok(gateway.client().post(GENERATE, &asked(&json!({}))).await);
        assert_eq!(body["candidates"][0]["finishReason"], word);
    }
}

#[tokio::test]
async fn errors_have_googles_envelope_and_statuses() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .provider("scripted", "gemini", Some(&upstream))
        .model("scripted", &["scripted"])
        .start()
        .await;
    let client = gateway.client();
    let check = |answer: &Answer, status: u16, code, word: &str, words: &str| {
        let error = answer.error(status, code);
        assert_eq!(
            (&error["status"], &error["code"]),
            (&json!(word), &json!(status)),
            "{error}"
        );
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains(words), "{message}");
    };
    let ask = async |fields: Value| client.post(GENERATE, &asked(&fields)).await;
    let answer = ask(json!({ "contents": [] })).await;
    check(
        &answer,
        400,
        "INVALID_REQUEST",
        "INVALID_ARGUMENT",
        "contents must not be empty.",
    );
    let violation = &answer.json()["error"]["details"][1];
    assert_eq!(violation["fieldViolations"][0]["field"], "contents");
    let answer = client
        .post(
            "/v1beta/models/gemini-0:generateContent",
            &asked(&json!({})),
        )
        .await;
    check(
        &answer,
        404,
        "UNKNOWN_MODEL",
        "NOT_FOUND",
        "models/gemini-0 is not found",
    );
    let answer = client
        .post("/v1beta/models/scripted:embedContent", &asked(&json!({})))
        .await;
    check(&answer, 404, "NOT_FOUND", "NOT_FOUND", ":generateContent");
    let stranger = gateway
        .stranger()
        .with_header("x-goog-api-key", "AIza-wrong");
    let answer = stranger.post(GENERATE, &asked(&json!({}))).await;
    check(&answer, 401, "UNAUTHENTICATED", "UNAUTHENTICATED", "");
    let answer = client
        .post(&STREAM.replace("sse", "proto"), &asked(&json!({})))
        .await;
    check(
        &answer,
        400,
        "INVALID_REQUEST",
        "INVALID_ARGUMENT",
        "alt must be",
    );
    let answer = client.post("/v1beta/files", &json!({})).await;
    check(&answer, 404, "NOT_FOUND", "NOT_FOUND", "");

    // The client gets the wording of a provider of its dialect.
    let why = "Please ensure that function call turn comes immediately after a user turn.";
    upstream.will(refusal(400, "INVALID_ARGUMENT", why));
    let answer = ask(json!({})).await;
    check(&answer, 400, "UPSTREAM_REJECTED", "INVALID_ARGUMENT", why);
    assert_eq!(answer.json()["error"]["message"], why);
    // Errors about the account of the gateway stay hidden.
    upstream.will(refusal(
        403,
        "PERMISSION_DENIED",
        "Project 5 has no access.",
    ));
    let answer = ask(json!({})).await;
    check(&answer, 502, "UPSTREAM_ERROR", "UNAVAILABLE", "");
    assert!(!answer.text().contains("Project"), "{}", answer.text());
    for _ in 0..2 {
        upstream.will(refusal(503, "UNAVAILABLE", "Overloaded."));
    }
    let answer = ask(json!({})).await;
    check(&answer, 503, "UPSTREAM_UNAVAILABLE", "UNAVAILABLE", "");
}

#[tokio::test]
async fn a_request_beyond_the_credits_is_refused_with_the_shortfall() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .provider("scripted", "gemini", Some(&upstream))
        .model("scripted", &["scripted"])
        .credits(0)
        .start()
        .await;
    let costly = json!({ "generationConfig": { "maxOutputTokens": 4_000_000 } });
    let answer = gateway.client().post(GENERATE, &asked(&costly)).await;
    let error = answer.error(429, "QUOTA_EXCEEDED");
    assert_eq!(error["status"], "RESOURCE_EXHAUSTED");
    let facts = &error["details"][0]["metadata"];
    assert!(facts["shortfall_credits"].is_string(), "{error}");
    assert_eq!(answer.headers["x-should-retry"], "false");
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_stream_that_fails_ends_with_googles_error_in_either_form() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        for path in [STREAM, STREAM.trim_end_matches("?alt=sse")] {
            upstream.will(broken_stream(adapter));
            let stream = gateway
                .client()
                .follow(Method::POST, path, &asked(&json!({})))
                .await;
            let chunks = match path.ends_with("sse") {
                true => chunks(&stream.rest().await),
                false => stream
                    .try_json()
                    .await
                    .as_array()
                    .cloned()
                    .unwrap_or_default(),
            };
            assert_eq!(chunks.len(), 2, "{adapter} {path}: {chunks:?}");
            assert_eq!(parts(&chunks[0])[0]["text"], "So");
            let error = &chunks[1]["error"];
            assert_eq!(
                (&error["code"], &error["status"]),
                (&json!(503), &json!("UNAVAILABLE"))
            );
            assert_eq!(error["details"][0]["reason"], "UPSTREAM_UNAVAILABLE");
        }
    }
}

/// Clients close silent connections. Google's SDK for Python fails at a comment, so weir sends empty events.
#[tokio::test]
async fn a_silent_stream_is_kept_alive_without_comments() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(rich_stream("gemini").after_gate(&gate));
    let gateway = Gateway::with_adapter("gemini", &upstream).await;
    let mut stream = gateway
        .client()
        .follow(Method::POST, STREAM, &asked(&json!({})))
        .await;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.next().await.as_deref(), Some(""));
    gate.open();
    let chunk = stream.next_chunk().await;
    assert_eq!(parts(&chunk)[0]["text"], "Hm.");
    let last = chunks(&stream.rest().await).pop().expect("a chunk");
    assert_eq!(last["candidates"][0]["finishReason"], "STOP");
}

#[tokio::test]
async fn tokens_are_counted_by_weir_alone_and_for_nothing() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_adapter("gemini", &upstream).await;
    let client = gateway.client();
    let balance = async || {
        let answer = client.post("/billing/sync-balance", &json!({})).await;
        answer.json()["available_credits"].clone()
    };
    let before = balance().await;
    let count = "/v1beta/models/scripted:countTokens";
    let contents = |text: &str| json!([{ "role": "user", "parts": [{ "text": text }] }]);
    let few = ok(client
        .post(count, &json!({ "contents": contents("Hello") }))
        .await);
    let few = few["totalTokens"].as_u64().expect("a count");
    assert!((1..200).contains(&few), "{few}");
    let whole = json!({ "generateContentRequest": asked(&json!({ "contents": contents(&"word ".repeat(400)) })) });
    let many = ok(client.post(count, &whole).await);
    assert!(many["totalTokens"].as_u64() >= Some(few + 400), "{many}");
    let unknown = client
        .post(
            "/v1beta/models/none:countTokens",
            &json!({ "contents": contents("Hi") }),
        )
        .await;
    unknown.error(404, "UNKNOWN_MODEL");
    assert_eq!(upstream.count(), 0);
    assert_eq!(balance().await, before);
}

#[tokio::test]
async fn models_are_listed_in_pages_and_found_by_name() {
    let gateway = Gateway::start().await;
    let client = gateway.client();
    let list = ok(client.get("/v1beta/models").await);
    let names: Vec<_> = list["models"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|model| model["name"].clone())
        .collect();
    assert!(names.contains(&json!("models/demo")), "{names:?}");
    assert_eq!(list["nextPageToken"], Value::Null);
    let mut paged = Vec::new();
    let mut path = "/v1beta/models?pageSize=1".to_owned();
    loop {
        let page = ok(client.get(&path).await);
        let models = page["models"].as_array().expect("a list");
        assert_eq!(models.len(), 1);
        paged.push(models[0]["name"].clone());
        let Some(token) = page["nextPageToken"].as_str() else {
            break;
        };
        path = format!("/v1beta/models?pageSize=1&pageToken={token}");
    }
    assert_eq!(paged, names);
    for path in ["/v1beta/models/demo", "/v1beta/models/models/demo"] {
        let model = ok(client.get(path).await);
        assert_eq!(model["name"], "models/demo");
        assert!(model["inputTokenLimit"].as_u64() > Some(0), "{model}");
        let methods = model["supportedGenerationMethods"]
            .as_array()
            .expect("a list");
        assert!(methods.contains(&json!("generateContent")));
    }
    client
        .get("/v1beta/models/none")
        .await
        .error(404, "UNKNOWN_MODEL");
    client
        .get("/v1beta/models?pageSize=0")
        .await
        .error(400, "INVALID_REQUEST");
}

#[tokio::test]
async fn a_key_comes_in_googles_header() {
    let gateway = Gateway::start().await;
    let client = gateway
        .stranger()
        .with_header("x-goog-api-key", gateway.key());
    ok(client.get("/v1beta/models").await);
    ok(client.get("/models").await);
    // Google's SDK for Python uses this version by default.
    let list = ok(client.get("/v1/models?pageSize=1").await);
    assert_eq!(list["models"].as_array().map(Vec::len), Some(1), "{list}");
    let model = ok(client.get("/v1/models/demo").await);
    assert_eq!(model["name"], "models/demo");
    let error = client
        .get("/v1/models/none")
        .await
        .error(404, "UNKNOWN_MODEL");
    assert_eq!(error["status"], "NOT_FOUND");
}
