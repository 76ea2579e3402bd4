//! Every adapter that calls a provider, except `openai`, with a scripted provider. Most other tests use `openai`.

use serde_json::{Value, json};
use tests::gateway::UPSTREAM_CREDENTIAL;
use tests::scenario::aws_stream;
use tests::source::for_each_provider_adapter;
use tests::{Gateway, Reply, Upstream};

/// The API of a provider, as far as one exchange needs it.
pub(crate) struct Provider {
    pub(crate) adapter: &'static str,
    path: &'static str,
    stream_path: &'static str,
    /// The header of the credential.
    credential: &'static str,
    /// The place of the picture in the request, as a JSON pointer.
    picture: &'static str,
    pub(crate) whole: fn() -> Reply,
    pub(crate) stream: fn() -> Reply,
}

const PROVIDERS: [Provider; 4] = [
    Provider {
        adapter: "anthropic",
        path: "/messages",
        stream_path: "/messages",
        credential: "x-api-key",
        picture: "/messages/0/content/1/source/data",
        whole: || {
            Reply::json(
                200,
                &json!({
                    "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                    "content": [
                        { "type": "thinking", "thinking": "Hm.", "signature": "c2ln" },
                        { "type": "text", "text": "Hi there" },
                        { "type": "tool_use", "id": "t1", "name": "look", "input": { "at": 1 } },
                    ],
                    "stop_reason": "tool_use",
                    "usage": { "input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 7 },
                }),
            )
        },
        stream: || {
            Reply::events([
                r#"{"type":"message_start","message":{"id":"msg_1","model":"m","content":[],"usage":{"input_tokens":5,"cache_read_input_tokens":3,"output_tokens":1}}}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi "}}"#,
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"there"}}"#,
                r#"{"type":"content_block_stop","index":1}"#,
                r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t1","name":"look","input":{}}}"#,
                r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"at\":1}"}}"#,
                r#"{"type":"content_block_stop","index":2}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}"#,
                r#"{"type":"message_stop"}"#,
            ])
        },
    },
    Provider {
        adapter: "gemini",
        path: "/models/scripted:generateContent",
        stream_path: "/models/scripted:streamGenerateContent?alt=sse",
        credential: "x-goog-api-key",
        picture: "/contents/0/parts/1/inlineData/data",
        whole: || {
            Reply::json(
                200,
                &json!({
                    "candidates": [{
                        "content": { "parts": [
                            { "text": "Hm.", "thought": true },
                            { "text": "Hi there" },
                            { "functionCall": { "id": "t1", "name": "look", "args": { "at": 1 } } },
                        ] },
                        "finishReason": "STOP",
                    }],
                    "usageMetadata": { "promptTokenCount": 8, "candidatesTokenCount": 5, "thoughtsTokenCount": 2 },
                }),
            )
        },
        stream: || {
            Reply::events([
                r#"{"candidates":[{"content":{"parts":[{"text":"Hm.","thought":true}]}}]}"#,
                r#"{"candidates":[{"content":{"parts":[{"text":"Hi "}]}}]}"#,
                r#"{"candidates":[{"content":{"parts":[{"text":"there"},{"functionCall":{"id":"t1","name":"look","args":{"at":1}}}]}}]}"#,
                r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":5,"thoughtsTokenCount":2}}"#,
            ])
        },
    },
    Provider {
        adapter: "bedrock",
        path: "/model/scripted/converse",
        stream_path: "/model/scripted/converse-stream",
        credential: "authorization",
        picture: "/messages/0/content/1/image/source/bytes",
        whole: || {
            Reply::json(
                200,
                &json!({
                    "output": { "message": { "role": "assistant", "content": [
                        { "reasoningContent": { "reasoningText": { "text": "Hm.", "signature": "c2ln" } } },
                        { "text": "Hi there" },
                        { "toolUse": { "toolUseId": "t1", "name": "look", "input": { "at": 1 } } },
                    ] } },
                    "stopReason": "tool_use",
                    "usage": { "inputTokens": 8, "outputTokens": 7, "totalTokens": 15 },
                }),
            )
        },
        stream: || {
            aws_stream(
                [
                    ("messageStart", r#"{"role":"assistant"}"#),
                    ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"Hm."}}}"#),
                    ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"c2ln"}}}"#),
                    ("contentBlockStop", r#"{"contentBlockIndex":0}"#),
                    ("contentBlockDelta", r#"{"contentBlockIndex":1,"delta":{"text":"Hi "}}"#),
                    ("contentBlockDelta", r#"{"contentBlockIndex":1,"delta":{"text":"there"}}"#),
                    ("contentBlockStop", r#"{"contentBlockIndex":1}"#),
                    ("contentBlockStart", r#"{"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"t1","name":"look"}}}"#),
                    ("contentBlockDelta", r#"{"contentBlockIndex":2,"delta":{"toolUse":{"input":"{\"at\":1}"}}}"#),
                    ("contentBlockStop", r#"{"contentBlockIndex":2}"#),
                    ("messageStop", r#"{"stopReason":"tool_use"}"#),
                    ("metadata", r#"{"usage":{"inputTokens":8,"outputTokens":7,"totalTokens":15}}"#),
                ]
                .map(|(name, payload)| (name, payload.to_owned())),
            )
        },
    },
    Provider {
        adapter: "ollama",
        path: "/chat",
        stream_path: "/chat",
        credential: "authorization",
        picture: "/messages/0/images/0",
        whole: || {
            Reply::json(
                200,
                &json!({
                    "model": "m",
                    "message": {
                        "role": "assistant", "thinking": "Hm.", "content": "Hi there",
                        "tool_calls": [{ "id": "t1", "function": { "name": "look", "arguments": { "at": 1 } } }],
                    },
                    "done": true, "done_reason": "stop", "prompt_eval_count": 8, "eval_count": 7,
                }),
            )
        },
        stream: || {
            let lines = [
                r#"{"model":"m","message":{"thinking":"Hm.","content":""},"done":false}"#,
                r#"{"model":"m","message":{"content":"Hi "},"done":false}"#,
                r#"{"model":"m","message":{"content":"there","tool_calls":[{"id":"t1","function":{"name":"look","arguments":{"at":1}}}]},"done":false}"#,
                r#"{"model":"m","message":{"content":""},"done":true,"done_reason":"stop","prompt_eval_count":8,"eval_count":7}"#,
            ];
            Reply::new(200)
                .header("content-type", "application/x-ndjson")
                .body(lines.join("\n") + "\n")
        },
    },
];

/// The provider of an adapter; `None` for `openai`, and for adapters without test data.
pub(crate) fn provider(adapter: &str) -> Option<&'static Provider> {
    PROVIDERS
        .iter()
        .find(|provider| provider.adapter == adapter)
}

#[test]
fn every_adapter_has_a_provider_to_test_with() {
    for_each_provider_adapter("PROVIDERS in tests/it/adapters.rs", |adapter| {
        (adapter == "openai" || provider(adapter).is_some()).then_some(())
    });
}

/// A question with a picture, to a model that may call a tool.
fn question() -> Value {
    json!({
        "model": "scripted",
        "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "What is this?" },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0KGgo=" } },
        ] }],
        "tools": [{ "type": "function", "function": { "name": "look", "parameters": { "type": "object" } } }],
    })
}

#[tokio::test]
async fn each_provider_is_asked_in_its_dialect_and_answers_in_the_clients() {
    for provider in &PROVIDERS {
        let upstream = Upstream::start().await;
        upstream.will((provider.whole)());
        let gateway = Gateway::with_adapter(provider.adapter, &upstream).await;
        let answer = gateway.client().post("/chat", &question()).await;
        assert_eq!(
            answer.status,
            200,
            "{}: {}",
            provider.adapter,
            answer.text()
        );
        let json = answer.json();
        let (message, usage) = (&json["choices"][0]["message"], &json["usage"]);
        assert_eq!(message["content"], "Hi there");
        assert_eq!(message["reasoning_content"], "Hm.");
        let called = &message["tool_calls"][0];
        assert_eq!(called["id"], "t1");
        assert_eq!(called["function"]["name"], "look");
        let arguments = called["function"]["arguments"].as_str().expect("a text");
        assert_eq!(
            serde_json::from_str::<Value>(arguments).expect("JSON"),
            json!({ "at": 1 })
        );
        assert_eq!(json["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(
            (&usage["prompt_tokens"], &usage["completion_tokens"]),
            (&json!(8), &json!(7))
        );

        let request = upstream.next_request().await;
        assert!(request.path.ends_with(provider.path), "{}", request.path);
        let credential = request.header(provider.credential);
        assert!(credential.is_some_and(|value| value.ends_with(UPSTREAM_CREDENTIAL)));
        let sent = request.json();
        assert_eq!(
            sent.pointer(provider.picture),
            Some(&json!("iVBORw0KGgo=")),
            "{sent}"
        );
    }
}

#[tokio::test]
async fn each_provider_streams() {
    for provider in &PROVIDERS {
        let upstream = Upstream::start().await;
        upstream.will((provider.stream)().one_byte_at_a_time());
        let gateway = Gateway::with_adapter(provider.adapter, &upstream).await;
        let stream = gateway.stream("scripted", "Hello").await;
        assert_eq!(stream.content().await, "Hi there", "{}", provider.adapter);
        let request = upstream.next_request().await;
        assert!(
            request.path.ends_with(provider.stream_path),
            "{}",
            request.path
        );
    }
}

#[tokio::test]
async fn a_stream_that_its_provider_cuts_is_not_whole() {
    for provider in &PROVIDERS {
        let upstream = Upstream::start().await;
        let stream = (provider.stream)();
        let bytes = stream.whole_body().len() / 2;
        upstream.will(stream.cut_after(bytes));
        let gateway = Gateway::with_adapter(provider.adapter, &upstream).await;
        let stream = gateway.stream("scripted", "Hello").await;
        assert!(!stream.is_whole().await, "{}", provider.adapter);
    }
}

/// A proxy between weir and a provider may answer in another API's format. Such an answer has usage, but no message.
#[tokio::test]
async fn an_answer_of_another_api_has_its_text_or_costs_nothing() {
    let usage = json!({ "prompt_tokens": 8, "completion_tokens": 7, "input_tokens": 8, "output_tokens": 7 });
    let chat = json!({
        "id": "c1", "object": "chat.completion", "model": "m", "usage": usage,
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Hi" }, "finish_reason": "stop" }],
    });
    let responses = json!({
        "id": "r1", "object": "response", "model": "m", "status": "completed", "usage": usage,
        "output": [{ "id": "m1", "type": "message", "role": "assistant",
                     "content": [{ "type": "output_text", "text": "Hi", "annotations": [] }] }],
    });
    let mut answers = vec![("openai", chat), ("responses", responses)];
    for provider in &PROVIDERS {
        let whole = (provider.whole)().whole_body();
        answers.push((
            provider.adapter,
            serde_json::from_slice(&whole).expect("JSON"),
        ));
    }
    for (api, _) in &answers {
        let upstream = Upstream::start().await;
        let (adapter, options) = match *api {
            "responses" => ("openai", ", options = { api = \"responses\" }"),
            adapter => (adapter, ""),
        };
        let gateway = Gateway::builder()
            .provider("p", adapter, Some(&upstream))
            .tables(&format!(
                "[models.scripted]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
                 price = {{ input = 1, output = 2 }}\nupstreams = [{{ provider = \"p\"{options} }}]\n"
            ))
            .start()
            .await;
        let client = gateway.client();
        let balance = async || {
            let synced = client.post("/billing/sync-balance", &json!({})).await;
            synced.json()["available_credits"].clone()
        };
        for (of, body) in answers.iter().filter(|(of, _)| of != api) {
            let before = balance().await;
            upstream.will(Reply::json(200, body));
            let answer = client.post("/chat", &tests::chat("scripted", "Hi")).await;
            let what = format!("{of}'s answer for {api}: {}", answer.text());
            // Converse's reader finds the text in the array of Responses.
            if answer.status == 200 {
                let message = &answer.json()["choices"][0]["message"];
                assert_eq!(message["content"], "Hi", "{what}");
                upstream.next_request().await;
                continue;
            }
            assert!(answer.status.as_u16() >= 500, "{what}");
            upstream.next_request().await;
            assert_eq!(balance().await, before, "{what}");
        }
    }
}
