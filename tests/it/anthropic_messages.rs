//! Anthropic's Messages API for clients, with providers of the same dialect and of other dialects.

use serde_json::{Value, json};
use tests::gateway::UPSTREAM_CREDENTIAL;
use tests::source::for_each_provider_adapter;
use tests::{EventStream, Gate, Gateway, Reply, Upstream, chat};

use crate::adapters::provider;

/// An adapter of the client's own dialect, and an adapter of another dialect. `cross.rs` tests all adapters.
pub(crate) const ADAPTERS: [&str; 2] = ["anthropic", "openai"];

/// A request with these additional fields.
fn asked(fields: &Value) -> Value {
    let mut body = json!({
        "model": "scripted", "max_tokens": 100,
        "messages": [{ "role": "user", "content": "Hello" }],
        "tools": [{ "name": "look", "input_schema": { "type": "object" } }],
    });
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

/// A response of Anthropic's Messages, not streamed.
fn message(content: &Value, stop: &Value, usage: &Value) -> Reply {
    let mut message = json!({
        "id": "msg_up", "type": "message", "role": "assistant", "model": "claude",
        "content": content, "usage": usage,
    });
    for (name, value) in stop.as_object().expect("an object") {
        message[name] = value.clone();
    }
    Reply::json(200, &message)
}

/// A response of OpenAI's Chat Completions, not streamed.
fn completion(message: &Value, finish_reason: &str, usage: &Value) -> Reply {
    let choice = json!({ "index": 0, "message": message, "finish_reason": finish_reason });
    Reply::json(200, &json!({ "choices": [choice], "usage": usage }))
}

/// A response with thinking, text and two parallel calls, in the dialect of the adapter.
pub(crate) fn rich(adapter: &str) -> Reply {
    match adapter {
        "anthropic" => message(
            &json!([
                { "type": "thinking", "thinking": "Hm.", "signature": "c2ln" },
                { "type": "text", "text": "Hi there" },
                { "type": "tool_use", "id": "t1", "name": "look", "input": { "at": 1 } },
                { "type": "tool_use", "id": "t2", "name": "look", "input": {} },
            ]),
            &json!({ "stop_reason": "tool_use" }),
            &json!({
                "input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4,
                "cache_creation": { "ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 3 },
                "output_tokens": 7,
            }),
        ),
        _ => completion(
            &json!({
                "role": "assistant", "reasoning_content": "Hm.", "content": "Hi there",
                "tool_calls": [
                    { "id": "t1", "type": "function", "function": { "name": "look", "arguments": "{\"at\": 1}" } },
                    { "id": "t2", "type": "function", "function": { "name": "look", "arguments": "" } },
                ],
            }),
            "tool_calls",
            &json!({
                "prompt_tokens": 12, "prompt_tokens_details": { "cached_tokens": 3 }, "completion_tokens": 7,
            }),
        ),
    }
}

/// The response of [`rich`] as a stream. OpenAI's stream interleaves the two calls.
pub(crate) fn rich_stream(adapter: &str) -> Reply {
    match adapter {
        "anthropic" => Reply::events([
            r#"{"type":"message_start","message":{"id":"msg_up","model":"m","content":[],"usage":{"input_tokens":5,"cache_read_input_tokens":3,"cache_creation_input_tokens":4,"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":3},"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"ln"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi there"}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t1","name":"look","input":{}}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"at\""}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":": 1}"}}"#,
            r#"{"type":"content_block_stop","index":2}"#,
            r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t2","name":"look","input":{}}}"#,
            r#"{"type":"content_block_stop","index":3}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}"#,
            r#"{"type":"message_stop"}"#,
        ]),
        _ => Reply::events([
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"Hm."}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"Hi there"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t1","function":{"name":"look","arguments":"{\"at\""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"t2","function":{"name":"look","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":": 1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":12,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens":7}}"#,
            "[DONE]",
        ]),
    }
}

/// Every adapter that calls a provider, with a response of reasoning, text and calls, whole and streamed.
pub(crate) fn rich_replies() -> Vec<(String, (Reply, Reply))> {
    for_each_provider_adapter("PROVIDERS in tests/it/adapters.rs", |adapter| {
        if adapter == "openai" {
            return Some((rich(adapter), rich_stream(adapter)));
        }
        provider(adapter).map(|provider| ((provider.whole)(), (provider.stream)()))
    })
}

/// A response with a text, in the dialect of the adapter.
pub(crate) fn said(adapter: &str, text: &str) -> Reply {
    match adapter {
        "anthropic" => message(
            &json!([{ "type": "text", "text": text }]),
            &json!({ "stop_reason": "end_turn" }),
            &json!({ "input_tokens": 12, "output_tokens": 3 }),
        ),
        _ => Reply::chat(text),
    }
}

/// The response of [`said`] as a stream of these pieces.
pub(crate) fn said_stream<const PIECES: usize>(adapter: &str, texts: [&str; PIECES]) -> Reply {
    if adapter != "anthropic" {
        return Reply::chat_stream(texts);
    }
    let delta = |text: &&str| {
        let delta = json!({ "type": "text_delta", "text": text });
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }).to_string()
    };
    let begin = [
        BEGUN,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    ];
    let end = [
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let pieces: Vec<_> = texts.iter().map(delta).collect();
    let pieces = pieces.iter().map(String::as_str);
    Reply::events(begin.into_iter().chain(pieces).chain(end))
}

/// The first event of Anthropic's streams.
const BEGUN: &str = r#"{"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":12,"output_tokens":1}}}"#;

/// A stream that fails after its first text.
pub(crate) fn broken_stream(adapter: &str) -> Reply {
    match adapter {
        "anthropic" => Reply::events([
            BEGUN,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"So"}}"#,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        ]),
        _ => Reply::events([
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"So"}}]}"#,
            r#"{"error":{"message":"broken","type":"server_error"}}"#,
        ]),
    }
}

/// The content that a client gets for [`rich`]. Only Anthropic signs its thinking.
fn rich_content(adapter: &str) -> Value {
    let signature = if adapter == "anthropic" { "c2ln" } else { "" };
    json!([
        { "type": "thinking", "thinking": "Hm.", "signature": signature, "provider": "scripted" },
        { "type": "text", "text": "Hi there" },
        { "type": "tool_use", "id": "t1", "name": "look", "input": { "at": 1 } },
        { "type": "tool_use", "id": "t2", "name": "look", "input": {} },
    ])
}

/// The name and the data of an event.
fn parsed(event: &str) -> (String, Value) {
    let (name, data) = event.split_once('\n').expect("a name and data");
    let name = name.strip_prefix("event: ").expect("a name");
    let data = data.strip_prefix("data: ").expect("data");
    (name.to_owned(), serde_json::from_str(data).expect("JSON"))
}

async fn rest(stream: EventStream) -> Vec<(String, Value)> {
    stream
        .rest()
        .await
        .iter()
        .map(|event| parsed(event))
        .collect()
}

#[tokio::test]
async fn an_answer_is_the_same_from_upstreams_of_either_dialect_and_costs_what_chat_does() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        let client = gateway.client();
        upstream.will(rich(adapter)).will(rich(adapter));
        let answer = client
            .post("/v1/messages?beta=true", &asked(&json!({})))
            .await;
        assert_eq!(answer.status, 200, "{adapter}: {}", answer.text());
        let said = answer.json();
        assert_eq!(said["content"], rich_content(adapter), "{adapter}");
        assert_eq!(
            (
                &said["type"],
                &said["role"],
                &said["model"],
                &said["stop_reason"]
            ),
            (
                &json!("message"),
                &json!("assistant"),
                &json!("scripted"),
                &json!("tool_use")
            )
        );
        assert!(said["id"].as_str().is_some_and(|id| id.starts_with("msg_")));
        let usage = &said["usage"];
        let (input, written) = if adapter == "anthropic" {
            (5, 4)
        } else {
            (9, 0)
        };
        assert_eq!(
            (
                &usage["input_tokens"],
                &usage["cache_read_input_tokens"],
                &usage["output_tokens"]
            ),
            (&json!(input), &json!(3), &json!(7)),
            "{adapter}"
        );
        assert_eq!(usage["cache_creation_input_tokens"], written);
        let by_lifetime = &usage["cache_creation"];
        assert_eq!(by_lifetime["ephemeral_5m_input_tokens"], written / 4);
        assert_eq!(by_lifetime["ephemeral_1h_input_tokens"], written / 4 * 3);

        let mut question = chat("scripted", "Hello");
        question["tools"] =
            json!([{ "type": "function", "function": { "name": "look", "parameters": {} } }]);
        let same = client.post("/v1/chat/completions", &question).await.json();
        assert_eq!(same["usage"]["prompt_tokens"], 12, "{same}");
        assert_eq!(same["usage"]["credits"], usage["credits"], "{adapter}");
        assert!(
            usage["credits"]
                .as_f64()
                .is_some_and(|credits| credits > 0.0)
        );
    }
}

#[tokio::test]
async fn a_stream_has_anthropics_events_in_anthropics_order() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        upstream
            .will(rich_stream(adapter).one_byte_at_a_time())
            .will(rich(adapter));
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        let client = gateway.client();
        let stream = client.stream("/v1/messages", &asked(&json!({}))).await;
        assert_eq!(stream.status, 200);
        assert_eq!(stream.headers["content-type"], "text/event-stream");
        let events = rest(stream).await;
        let of_block = |event: &(String, Value)| match event.0.as_str() {
            "content_block_delta" => event.1["delta"]["type"]
                .as_str()
                .expect("a type")
                .to_owned(),
            name => name.to_owned(),
        };
        let mut names: Vec<_> = events.iter().map(of_block).collect();
        // The number of text events is free.
        names.dedup();
        let signature: &[&str] = if adapter == "anthropic" {
            &["signature_delta"]
        } else {
            &[]
        };
        let expected: [&[&str]; 6] = [
            &["message_start", "content_block_start", "thinking_delta"],
            signature,
            &["content_block_stop", "content_block_start", "text_delta"],
            &[
                "content_block_stop",
                "content_block_start",
                "input_json_delta",
            ],
            &[
                "content_block_stop",
                "content_block_start",
                "input_json_delta",
            ],
            &["content_block_stop", "message_delta", "message_stop"],
        ];
        assert_eq!(names, expected.concat(), "{adapter}");
        // A block ends before the next block begins.
        let indexes: Vec<_> = events
            .iter()
            .filter_map(|(_, data)| data["index"].as_u64())
            .collect();
        assert!(indexes.is_sorted(), "{indexes:?}");

        let whole = client.post("/v1/messages", &asked(&json!({}))).await.json();
        let end = &events[events.len() - 2].1;
        assert_eq!(end["usage"], whole["usage"], "{adapter}");
        assert_eq!(end["delta"]["stop_reason"], "tool_use");
        let text = |kind: &str, field: &str, index: u64| {
            let pieces = events.iter().filter(|(_, data)| {
                data["delta"]["type"] == kind && data["index"].as_u64() == Some(index)
            });
            let pieces = pieces.map(|(_, data)| data["delta"][field].as_str().expect("a text"));
            pieces.collect::<String>()
        };
        assert_eq!(text("thinking_delta", "thinking", 0), "Hm.");
        assert_eq!(
            text("signature_delta", "signature", 0),
            rich_content(adapter)[0]["signature"]
        );
        assert_eq!(text("text_delta", "text", 1), "Hi there");
        let input =
            |index| serde_json::from_str::<Value>(&text("input_json_delta", "partial_json", index));
        assert_eq!(input(2).expect("JSON"), json!({ "at": 1 }));
        assert_eq!(input(3).expect("JSON"), json!({}));
        let start = &events[0].1["message"];
        assert_eq!(
            (&start["content"], &start["stop_reason"]),
            (&json!([]), &Value::Null)
        );
        // Only Anthropic counts the input at the start of a stream.
        let known = if adapter == "anthropic" { 5 } else { 0 };
        assert_eq!(start["usage"]["input_tokens"], known);
    }
}

/// A provider of the same dialect gets every field of the dialect as the client wrote it.
#[tokio::test]
async fn an_upstream_of_the_same_dialect_is_sent_what_the_client_wrote() {
    let upstream = Upstream::start().await;
    upstream.will(rich("anthropic"));
    let options = "[providers.scripted.options]\npass-fields = \"container, web_search\"\n";
    let gateway = Gateway::builder()
        .provider("scripted", "anthropic", Some(&upstream))
        .tables(options)
        .model("scripted", &["scripted"])
        .start()
        .await;
    let mark = json!({ "type": "ephemeral" });
    let lasting = json!({ "type": "ephemeral", "ttl": "1h" });
    let body = json!({
        "model": "scripted", "max_tokens": 4096, "stream": false,
        "system": [
            { "type": "text", "text": "  Be brief. \n", "cache_control": lasting },
            { "type": "text", "text": "żółw" },
        ],
        "messages": [
            { "role": "user", "content": [
                { "type": "document", "title": "t", "context": "c", "citations": { "enabled": true },
                  "source": { "type": "base64", "media_type": "application/pdf", "data": "aGk=" } },
                { "type": "document", "source": { "type": "url", "url": "https://a.example/b.pdf" } },
                { "type": "document", "citations": { "enabled": true },
                  "source": { "type": "text", "media_type": "text/plain", "data": "words" } },
                { "type": "image", "cache_control": mark,
                  "source": { "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" } },
                { "type": "image", "source": { "type": "url", "url": "https://a.example/b.png" } },
                { "type": "search_result", "source": "s", "title": "t", "content": [{ "type": "text", "text": "x" }] },
                { "type": "text", "text": "What is this?",
                  "cache_control": { "type": "ephemeral", "ttl": "5m", "scope": "global" } },
            ] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "", "signature": "c2ln" },
                { "type": "redacted_thinking", "data": "c2VhbGVk" },
                { "type": "text", "text": "A turtle.", "citations": [{ "type": "char_location", "cited_text": "x" }] },
                { "type": "server_tool_use", "id": "s1", "name": "web_search", "input": { "query": "q" } },
                { "type": "web_search_tool_result", "tool_use_id": "s1", "content": [] },
                { "type": "tool_use", "id": "t1", "name": "look", "input": { "at": 1.0 } },
                { "type": "tool_use", "id": "t2", "name": "look", "input": {} },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": "no" },
                { "type": "tool_result", "tool_use_id": "t2", "cache_control": mark, "content": [
                    { "type": "text", "text": "seen" },
                    { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" } },
                ] },
                { "type": "text", "text": "And now?" },
            ] },
        ],
        "tools": [
            { "name": "look", "description": "Looks.", "input_schema": { "type": "object" }, "strict": true,
              "defer_loading": true, "cache_control": lasting },
            { "type": "web_search_20250305", "name": "web_search", "max_uses": 2 },
        ],
        "tool_choice": { "type": "any", "disable_parallel_tool_use": true },
        "thinking": { "type": "adaptive", "display": "summarized" },
        "output_config": { "effort": "high", "format": { "type": "json_schema", "schema": { "type": "object" } } },
        "metadata": { "user_id": "u-1" },
        "context_management": { "edits": [{ "type": "clear_thinking_20251015", "keep": "all" }] },
        "container": { "id": "container_1", "skills": [{ "type": "anthropic", "skill_id": "xlsx", "version": "latest" }] },
        "stop_sequences": ["END"], "temperature": 1.0, "top_p": 0.9, "top_k": 5,
        "a_field_of_tomorrow": [1, 2],
    });
    let client = gateway
        .client()
        .with_header("anthropic-version", "2023-06-01")
        .with_header("anthropic-beta", "a-1,b-2")
        .with_header("x-stainless-lang", "python");
    let answer = client.post("/v1/messages?beta=true", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!answer.headers.contains_key("x-weir-ignored"));
    let request = upstream.next_request().await;
    assert!(request.path.ends_with("/messages"), "{}", request.path);
    assert_eq!(request.header("anthropic-beta"), Some("a-1,b-2"));
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(request.header("x-api-key"), Some(UPSTREAM_CREDENTIAL));
    assert_eq!(request.header("x-stainless-lang"), None);
    let sent = request.json();
    let mut expected = body;
    expected
        .as_object_mut()
        .expect("an object")
        .remove("stream");
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&sent[name], value, "{name}");
    }
    assert_eq!(
        sent.as_object().map(|sent| sent.len()),
        expected.as_object().map(|all| all.len())
    );
    // Numbers keep their notation.
    let text = std::str::from_utf8(&request.body).expect("UTF-8");
    assert!(text.contains(r#""input":{"at":1.0}"#), "{text}");
}

#[tokio::test]
async fn an_upstream_of_another_dialect_is_told_what_it_can_be_and_the_client_what_not() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("ok"));
    let gateway = Gateway::with_adapter("openai", &upstream).await;
    let mark = json!({ "type": "ephemeral" });
    let body = json!({
        "model": "scripted", "max_tokens": 4096,
        "system": [
            { "type": "text", "text": "  Be brief. \n", "cache_control": mark },
            { "type": "text", "text": "żółw" },
        ],
        "messages": [
            { "role": "user", "content": [
                { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" } },
                { "type": "text", "text": "What is this?", "cache_control": { "type": "ephemeral", "scope": "global" } },
            ] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "Hm.", "signature": "c2ln" },
                { "type": "text", "text": "A turtle.", "citations": [{ "type": "char_location", "cited_text": "x" }] },
                { "type": "tool_use", "id": "t1", "name": "look", "input": { "at": 1 } },
                { "type": "tool_use", "id": "t2", "name": "look", "input": {} },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": "no" },
                { "type": "tool_result", "tool_use_id": "t2", "content": [{ "type": "text", "text": "seen", "cache_control": mark }] },
                { "type": "text", "text": "And now?" },
            ] },
        ],
        "tools": [{ "name": "look", "description": "Looks.", "input_schema": { "type": "object" } }],
        "tool_choice": { "type": "tool", "name": "look", "disable_parallel_tool_use": true },
        "thinking": { "type": "enabled", "budget_tokens": 3000 },
        "metadata": { "user_id": "u-1" },
        "context_management": { "edits": [] },
        "stop_sequences": ["END"], "temperature": 0.5,
    });
    let client = gateway.client().with_header("anthropic-beta", "a-1");
    let answer = client.post("/v1/messages", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let ignored = answer.headers["x-weir-ignored"].to_str().expect("ASCII");
    let mut ignored: Vec<_> = ignored.split(", ").collect();
    ignored.sort_unstable();
    let names = [
        "cache_control",
        "citations",
        "context_management",
        "metadata",
        "reasoning",
        "reasoning.budget_tokens",
        "signature",
    ];
    assert_eq!(ignored, names);
    let request = upstream.next_request().await;
    assert_eq!(request.header("anthropic-beta"), None);
    let sent = request.json();
    let call = |id: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": "look", "arguments": arguments } });
    assert_eq!(
        sent["messages"],
        json!([
            { "role": "system", "content": [
                { "type": "text", "text": "  Be brief. \n" }, { "type": "text", "text": "żółw" },
            ] },
            { "role": "user", "content": [
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0KGgo=" } },
                { "type": "text", "text": "What is this?" },
            ] },
            { "role": "assistant", "content": "A turtle.", "tool_calls": [call("t1", r#"{"at":1}"#), call("t2", "{}")] },
            { "role": "tool", "tool_call_id": "t1", "content": "The tool failed.\nno" },
            { "role": "tool", "tool_call_id": "t2", "content": "seen" },
            { "role": "user", "content": "And now?" },
        ])
    );
    assert_eq!(
        sent["tool_choice"],
        json!({ "type": "function", "function": { "name": "look" } })
    );
    for (field, value) in [
        ("parallel_tool_calls", json!(false)),
        ("stop", json!(["END"])),
        ("temperature", json!(0.5)),
        ("max_completion_tokens", json!(4096)),
        ("reasoning_effort", json!("medium")),
    ] {
        assert_eq!(sent[field], value, "{field}");
    }

    for (fields, param) in [
        (json!({ "top_k": 5 }), "top_k"),
        (json!({ "mcp_servers": [] }), "mcp_servers"),
        (
            json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }], "tool_choice": { "type": "any" } }),
            "tools[0]",
        ),
        (
            json!({ "tools": [{ "name": "f", "input_schema": {}, "defer_loading": true }] }),
            "tools[0].defer_loading",
        ),
        (
            json!({ "messages": [{ "role": "user", "content": [{ "type": "search_result", "title": "t" }] }] }),
            "messages[0]",
        ),
        (
            // System prompts and tool results are separate messages for the provider.
            json!({ "system": "s", "messages": [
                { "role": "user", "content": "look" },
                { "role": "assistant", "content": [{ "type": "tool_use", "id": "c", "name": "look", "input": {} }] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "c", "content": "sun" },
                    { "type": "search_result", "title": "t" },
                ] },
            ] }),
            "messages[2]",
        ),
        (
            json!({ "system": [{ "type": "search_result", "title": "t" }] }),
            "system",
        ),
    ] {
        let answer = client.post("/v1/messages", &asked(&fields)).await;
        let error = answer.error(400, "UNSUPPORTED_PARAMETER");
        assert_eq!(
            (&error["type"], &error["param"]),
            (&json!("invalid_request_error"), &json!(param))
        );
    }
    assert_eq!(upstream.count(), 1);
}

/// A response goes back to the model unchanged, with the results of its calls.
#[tokio::test]
async fn an_answer_that_is_sent_back_with_results_reaches_its_provider_whole() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        upstream.will(rich(adapter)).will(rich(adapter));
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        let client = gateway.client();
        let answer = client.post("/v1/messages", &asked(&json!({}))).await.json();
        upstream.next_request().await;
        let again = asked(&json!({ "messages": [
            { "role": "user", "content": "Hello" },
            { "role": "assistant", "content": answer["content"] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "t1", "content": "one" },
                { "type": "tool_result", "tool_use_id": "t2", "content": "two" },
            ] },
        ] }));
        let answer = client.post("/v1/messages", &again).await;
        assert_eq!(answer.status, 200, "{adapter}: {}", answer.text());
        let sent = upstream.next_request().await.json();
        match adapter {
            "anthropic" => {
                let mut expected = again["messages"].clone();
                // The provider does not get weir's field `provider`.
                let thinking = expected[1]["content"][0].as_object_mut().expect("a block");
                thinking.remove("provider");
                assert_eq!(sent["messages"], expected);
            }
            _ => {
                assert_eq!(
                    sent["messages"][1]["tool_calls"][0]["function"]["arguments"],
                    r#"{"at":1}"#
                );
                assert_eq!(
                    sent["messages"][2],
                    json!({ "role": "tool", "tool_call_id": "t1", "content": "one" })
                );
                assert_eq!(sent["messages"][3]["content"], "two");
            }
        }
    }
}

/// A provider rejects thinking that it has not signed.
#[tokio::test]
async fn reasoning_that_another_provider_has_signed_is_left_out_by_name() {
    let upstream = Upstream::start().await;
    upstream.always(rich("anthropic"));
    let gateway = Gateway::with_adapter("anthropic", &upstream).await;
    let with = |provider: &str| {
        asked(&json!({ "messages": [
            { "role": "user", "content": "Hello" },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "Hm.", "signature": "c2ln", "provider": provider },
                { "type": "redacted_thinking", "data": "c2VhbGVk", "provider": provider },
                { "type": "text", "text": "Hi" },
            ] },
            { "role": "user", "content": "So?" },
        ] }))
    };
    for (provider, ignored, first) in [
        ("scripted", None, "thinking"),
        ("other", Some("reasoning"), "text"),
    ] {
        let answer = gateway.client().post("/v1/messages", &with(provider)).await;
        let named = answer
            .headers
            .get("x-weir-ignored")
            .map(|names| names.to_str().expect("ASCII"));
        assert_eq!(named, ignored, "{}", answer.text());
        let sent = upstream.next_request().await.json();
        let content = &sent["messages"][1]["content"];
        match first {
            "text" => assert_eq!(content, "Hi"),
            kind => assert_eq!(content[0]["type"], kind),
        }
    }
}

#[tokio::test]
async fn each_end_of_an_answer_has_its_reason() {
    let text = json!([{ "type": "text", "text": "So" }]);
    let used = json!({ "input_tokens": 1, "output_tokens": 1 });
    let counted = json!({ "prompt_tokens": 1, "completion_tokens": 1 });
    let said = json!({ "role": "assistant", "content": "So" });
    let declined = json!({ "role": "assistant", "refusal": "So" });
    let ended = |stop: Value| message(&text, &stop, &used);
    for (adapter, reply, reason, sequence) in [
        (
            "anthropic",
            ended(json!({ "stop_reason": "end_turn" })),
            "end_turn",
            None,
        ),
        (
            "anthropic",
            ended(json!({ "stop_reason": "max_tokens" })),
            "max_tokens",
            None,
        ),
        (
            "anthropic",
            ended(json!({ "stop_reason": "pause_turn" })),
            "pause_turn",
            None,
        ),
        (
            "anthropic",
            ended(json!({ "stop_reason": "refusal" })),
            "refusal",
            None,
        ),
        (
            "anthropic",
            ended(json!({ "stop_reason": "model_context_window_exceeded" })),
            "model_context_window_exceeded",
            None,
        ),
        (
            "anthropic",
            ended(json!({ "stop_reason": "stop_sequence", "stop_sequence": "END" })),
            "stop_sequence",
            Some("END"),
        ),
        (
            "openai",
            completion(&said, "stop", &counted),
            "end_turn",
            None,
        ),
        (
            "openai",
            completion(&said, "length", &counted),
            "max_tokens",
            None,
        ),
        (
            "openai",
            completion(&said, "content_filter", &counted),
            "refusal",
            None,
        ),
        (
            "openai",
            completion(&declined, "stop", &counted),
            "refusal",
            None,
        ),
    ] {
        let upstream = Upstream::start().await;
        upstream.will(reply);
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        let answer = gateway
            .client()
            .post("/v1/messages", &asked(&json!({})))
            .await;
        let answer = answer.json();
        assert_eq!(answer["stop_reason"], reason, "{adapter}: {answer}");
        assert_eq!(answer["stop_sequence"], json!(sequence));
        assert_eq!(answer["content"][0]["text"], "So");
    }
}

#[tokio::test]
async fn errors_have_anthropics_envelope_and_types() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .provider("scripted", "anthropic", Some(&upstream))
        .model("scripted", &["scripted"])
        .tables(
            "[models.small]\ncontext_window = 100\nmax_output_tokens = 50\ndefault_output_tokens = 50\n\
             upstreams = [{ provider = \"demo\" }]\nprice = { input = 1, output = 1 }\n",
        )
        .tables("[limits]\nbody_bytes = 20000\n")
        .credits(0)
        .start()
        .await;
    let client = gateway.client();
    let ask = async |fields: Value| client.post("/v1/messages", &asked(&fields)).await;
    let refused = |status: u16, kind: &str, message: &str| {
        let error = json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_up" });
        upstream.will(Reply::json(status, &error));
    };
    let check = |answer: &tests::Answer, status, code, kind: &str, words: &str| {
        let error = answer.error(status, code);
        assert_eq!(error["type"], kind, "{error}");
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains(words), "{message}");
        assert_eq!(answer.json()["type"], "error");
        assert_eq!(answer.headers["request-id"], answer.headers["x-request-id"]);
    };

    let answer = ask(json!({ "max_tokens": null })).await;
    check(
        &answer,
        400,
        "INVALID_REQUEST",
        "invalid_request_error",
        "max_tokens is required.",
    );
    let answer = ask(json!({ "model": "claude-0" })).await;
    check(
        &answer,
        404,
        "UNKNOWN_MODEL",
        "not_found_error",
        "model: claude-0",
    );
    let answer = ask(
        json!({ "model": "small", "max_tokens": 50, "tools": [], "system": "word ".repeat(100) }),
    )
    .await;
    check(
        &answer,
        400,
        "CONTEXT_LENGTH_EXCEEDED",
        "invalid_request_error",
        "prompt is too long",
    );
    let answer = ask(json!({ "max_tokens": 4_000_000 })).await;
    check(
        &answer,
        429,
        "QUOTA_EXCEEDED",
        "billing_error",
        "credit balance is too low",
    );
    assert_eq!(answer.headers["x-should-retry"], "false");
    let stranger = gateway.stranger().with_header("x-api-key", "sk-wrong");
    let answer = stranger.post("/v1/messages", &asked(&json!({}))).await;
    check(&answer, 401, "UNAUTHENTICATED", "authentication_error", "");
    let answer = client.get("/v1/messages").await;
    check(
        &answer,
        405,
        "METHOD_NOT_ALLOWED",
        "invalid_request_error",
        "",
    );
    let answer = client.post("/v1/messages/batches", &json!({})).await;
    check(&answer, 404, "NOT_FOUND", "not_found_error", "");
    let answer = ask(json!({ "system": "x".repeat(20_000) })).await;
    check(&answer, 413, "PAYLOAD_TOO_LARGE", "request_too_large", "");

    // Agents act on the wording of errors, so the client gets the wording of a provider of its dialect.
    let long = "prompt is too long: 210000 tokens > 200000 maximum";
    refused(400, "invalid_request_error", long);
    let answer = ask(json!({})).await;
    check(
        &answer,
        400,
        "CONTEXT_LENGTH_EXCEEDED",
        "invalid_request_error",
        long,
    );
    assert_eq!(answer.json()["error"]["message"], long);
    let why = "messages.1.content.0: Invalid `signature` in `thinking` block";
    refused(400, "invalid_request_error", why);
    let answer = ask(json!({})).await;
    assert_eq!(answer.error(400, "UPSTREAM_REJECTED")["message"], why);
    // Errors about the account of the gateway stay hidden.
    refused(401, "authentication_error", "invalid x-api-key");
    let answer = ask(json!({})).await;
    check(&answer, 502, "UPSTREAM_ERROR", "api_error", "");
    assert!(!answer.text().contains("x-api-key"), "{}", answer.text());
    for _ in 0..2 {
        refused(529, "overloaded_error", "Overloaded");
    }
    let answer = ask(json!({})).await;
    check(&answer, 529, "UPSTREAM_UNAVAILABLE", "overloaded_error", "");
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn the_words_of_another_dialects_upstream_are_told_as_weirs() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::error(400, "no such thing"));
    let gateway = Gateway::with_adapter("openai", &upstream).await;
    let answer = gateway
        .client()
        .post("/v1/messages", &asked(&json!({})))
        .await;
    let error = answer.error(400, "UPSTREAM_REJECTED");
    assert_eq!(
        (&error["type"], &error["message"]),
        (
            &json!("invalid_request_error"),
            &json!("The model's provider rejected the request: no such thing")
        )
    );
}

#[tokio::test]
async fn a_stream_that_fails_ends_with_anthropics_error_and_nothing_else() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        upstream.will(broken_stream(adapter));
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        let stream = gateway
            .client()
            .stream("/v1/messages", &asked(&json!({})))
            .await;
        let id = stream.headers["request-id"]
            .to_str()
            .expect("ASCII")
            .to_owned();
        let events = rest(stream).await;
        let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "error",
        ];
        assert_eq!(names, expected, "{adapter}");
        let error = &events[3].1;
        assert_eq!(
            (&error["type"], &error["request_id"]),
            (&json!("error"), &json!(id))
        );
        assert_eq!(
            error["error"]["type"], "overloaded_error",
            "{adapter}: {error}"
        );
        assert_eq!(error["error"]["weir_code"], "UPSTREAM_UNAVAILABLE");
    }
}

/// Clients close silent connections. A ping is an event of the dialect without content.
#[tokio::test]
async fn a_silent_stream_is_kept_alive_by_pings() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(rich_stream("openai").after_gate(&gate));
    let gateway = Gateway::with_adapter("openai", &upstream).await;
    let mut stream = gateway
        .client()
        .stream("/v1/messages", &asked(&json!({})))
        .await;
    assert_eq!(stream.status, 200);
    let event = stream.next().await.expect("an event");
    assert_eq!(
        parsed(&event),
        ("ping".to_owned(), json!({ "type": "ping" }))
    );
    gate.open();
    let events = rest(stream).await;
    assert_eq!(events[0].0, "message_start");
    assert_eq!(
        events.last().map(|(name, _)| name.as_str()),
        Some("message_stop")
    );
}

#[tokio::test]
async fn tokens_are_counted_by_weir_alone_and_for_nothing() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .provider("scripted", "anthropic", Some(&upstream))
        .model("scripted", &["scripted"])
        .tables(
            "[models.small]\ncontext_window = 100\nmax_output_tokens = 50\ndefault_output_tokens = 50\n\
             upstreams = [{ provider = \"demo\" }]\nprice = { input = 1, output = 1 }\n",
        )
        .start()
        .await;
    let client = gateway.client();
    let count = async |fields: Value| {
        let mut body = asked(&fields);
        body.as_object_mut()
            .expect("an object")
            .remove("max_tokens");
        client
            .post("/v1/messages/count_tokens?beta=true", &body)
            .await
    };
    let before = client
        .post("/billing/sync-balance", &json!({}))
        .await
        .json();
    let few = count(json!({})).await;
    assert_eq!(few.status, 200, "{}", few.text());
    assert!(
        few.headers.contains_key("ratelimit"),
        "it counts as a request"
    );
    let few = few.json();
    assert_eq!(few.as_object().map(|fields| fields.len()), Some(1), "{few}");
    let many = count(json!({ "system": "word ".repeat(400) })).await.json();
    let (few, many) = (few["input_tokens"].as_u64(), many["input_tokens"].as_u64());
    assert!(few.is_some_and(|few| (1..200).contains(&few)), "{few:?}");
    assert!(
        many.expect("a count") >= few.expect("a count") + 400,
        "{many:?}"
    );
    // The endpoint also counts input that is too long.
    let long = count(json!({ "model": "small", "tools": [], "system": "word ".repeat(400) })).await;
    assert!(
        long.json()["input_tokens"]
            .as_u64()
            .is_some_and(|tokens| tokens > 100),
        "{}",
        long.text()
    );

    let error = count(json!({ "model": "none" }))
        .await
        .error(404, "UNKNOWN_MODEL");
    assert_eq!(error["type"], "not_found_error");
    count(json!({ "messages": [] }))
        .await
        .error(400, "INVALID_REQUEST");
    let path = "/v1/messages/count_tokens";
    let stranger = gateway.stranger().post(path, &asked(&json!({}))).await;
    assert_eq!(
        stranger.error(401, "UNAUTHENTICATED")["type"],
        "authentication_error"
    );
    assert_eq!(upstream.count(), 0);
    let after = client
        .post("/billing/sync-balance", &json!({}))
        .await
        .json();
    assert_eq!(before["available_credits"], after["available_credits"]);
}

/// A request may have both headers with the same key, as coding agents send them.
#[tokio::test]
async fn a_key_comes_in_either_header_or_in_both() {
    let upstream = Upstream::start().await;
    upstream.always(rich("anthropic"));
    let gateway = Gateway::with_adapter("anthropic", &upstream).await;
    let key = gateway.key();
    let stranger = || gateway.stranger();
    for client in [
        stranger().with_header("x-api-key", key),
        stranger().with_key(key),
        stranger().with_header("x-api-key", key).with_key(key),
    ] {
        assert_eq!(
            client.post("/v1/messages", &asked(&json!({}))).await.status,
            200
        );
    }
}

/// A request of Claude Code in the middle of a conversation, after its documentation and its real requests.
const CLAUDE_CODE: &str = include_str!("anthropic_messages/claude_code.json");

/// Each adapter serves the fields that coding agents always send, and ignores the fields that its provider lacks.
#[tokio::test]
async fn a_coding_agents_request_is_served_by_each_adapter() {
    let request: Value = serde_json::from_str(CLAUDE_CODE).expect("JSON");
    for (adapter, (_, reply)) in rich_replies() {
        let upstream = Upstream::start().await;
        upstream.will(reply);
        let gateway = Gateway::with_adapter(&adapter, &upstream).await;
        let mut body = request.clone();
        body["model"] = json!("scripted");
        let key = gateway.key();
        let client = gateway
            .client()
            .with_header("x-api-key", key)
            .with_header("anthropic-version", "2023-06-01")
            .with_header("anthropic-beta", "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,effort-2025-11-24")
            .with_header("anthropic-dangerous-direct-browser-access", "true")
            .with_header("x-app", "cli")
            .with_header("x-stainless-retry-count", "0");
        let stream = client.stream("/v1/messages?beta=true", &body).await;
        let ignored = stream.headers.get("x-weir-ignored").cloned();
        assert_eq!(stream.status, 200, "{adapter}");
        let events = rest(stream).await;
        let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            (names[0], names[names.len() - 1]),
            ("message_start", "message_stop"),
            "{adapter}"
        );
        let said: String = events
            .iter()
            .filter_map(|(_, data)| data["delta"]["text"].as_str())
            .collect();
        assert_eq!(said, "Hi there", "{adapter}");
        let end = &events[events.len() - 2].1;
        assert_eq!(end["delta"]["stop_reason"], "tool_use", "{adapter}");
        let sent = upstream.next_request().await.json();
        if adapter == "anthropic" {
            assert_eq!(ignored, None);
            // weir omits `is_error: false`, and writes a list with one text as a string.
            let results = &mut body["messages"][2]["content"];
            results[0]
                .as_object_mut()
                .expect("a result")
                .remove("is_error");
            results[1]["content"] = json!("# A project");
            for (name, value) in body.as_object().expect("an object") {
                assert_eq!(&sent[name], value, "{name}");
            }
        } else {
            let ignored = ignored
                .expect("some are left out")
                .to_str()
                .expect("ASCII")
                .to_owned();
            for name in ["cache_control", "context_management", "metadata"] {
                // Bedrock has cache points.
                if adapter == "bedrock" && name == "cache_control" {
                    continue;
                }
                assert!(ignored.contains(name), "{adapter}: {ignored}");
            }
        }
    }
}

/// The provider's fields of the message itself: its container, the edits of its context, and the calls of its own tools. The
/// shapes are those of `BetaMessage` and `BetaRawMessageDeltaEvent` in `anthropic` 2.14.0 (PyPI).
#[tokio::test]
async fn the_providers_fields_of_the_message_reach_the_client_plain_and_streamed() {
    let container =
        json!({ "id": "container_1", "expires_at": "2026-11-26T21:00:00Z", "skills": null });
    let management = json!({ "applied_edits": [
        { "type": "clear_tool_uses_20250919", "cleared_input_tokens": 50, "cleared_tool_uses": 2 },
    ] });
    let tools = json!({ "web_search_requests": 2, "web_fetch_requests": 0 });
    let usage = json!({ "input_tokens": 12, "output_tokens": 3, "server_tool_use": tools });
    let text = json!([{ "type": "text", "text": "So" }]);
    let fields = json!({ "stop_reason": "end_turn", "container": container, "context_management": management });
    let start = json!({ "type": "message_start", "message": {
        "id": "m", "content": [], "container": null, "context_management": null,
        "usage": { "input_tokens": 12, "output_tokens": 1, "server_tool_use": null },
    } });
    let end = json!({
        "type": "message_delta", "delta": { "stop_reason": "end_turn", "container": container },
        "context_management": management, "usage": { "output_tokens": 3, "server_tool_use": tools },
    });
    let upstream = Upstream::start().await;
    upstream
        .will(message(&text, &fields, &usage))
        .will(Reply::events([
            start.to_string(),
            json!({ "type": "content_block_start", "index": 0, "content_block": text[0] })
                .to_string(),
            json!({ "type": "content_block_stop", "index": 0 }).to_string(),
            end.to_string(),
            json!({ "type": "message_stop" }).to_string(),
        ]));
    let gateway = Gateway::with_adapter("anthropic", &upstream).await;
    let client = gateway.client();
    let answer = client.post("/v1/messages", &asked(&json!({}))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let message = answer.json();
    assert_eq!(message["content"], text);
    assert_eq!(message["container"], container);
    assert_eq!(message["context_management"], management);
    assert_eq!(message["usage"]["server_tool_use"], tools);

    let stream = client
        .stream("/v1/messages", &asked(&json!({ "stream": true })))
        .await;
    let events = rest(stream).await;
    let started = &events[0].1["message"];
    assert!(started["container"].is_null() && started["usage"]["server_tool_use"].is_null());
    let blocks = events
        .iter()
        .filter(|(name, _)| name == "content_block_start");
    assert_eq!(blocks.count(), 1);
    let (name, end) = &events[events.len() - 2];
    assert_eq!(name, "message_delta");
    assert_eq!(end["delta"]["container"], container);
    assert_eq!(end["context_management"], management);
    assert_eq!(end["usage"]["server_tool_use"], tools);
}

/// A model with a budget of reasoning refuses the results of calls whose turn has no signed reasoning: weir sends no budget.
#[tokio::test]
async fn a_model_with_a_budget_is_not_asked_to_reason_behind_unsigned_calls() {
    let upstream = Upstream::start().await;
    upstream.always(said("anthropic", "So"));
    let gateway = Gateway::builder()
        .provider("scripted", "anthropic", Some(&upstream))
        .tables("options = { thinking = \"budget\" }")
        .model("scripted", &["scripted"])
        .start()
        .await;
    let client = gateway.client();
    let call = json!({ "type": "tool_use", "id": "t1", "name": "look", "input": {} });
    let result = json!({ "type": "tool_result", "tool_use_id": "t1", "content": "seen" });
    let text = json!({ "type": "text", "text": "And now?" });
    let thought = json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" });
    let mut foreign = thought.clone();
    foreign["provider"] = json!("another");
    for (turn, last, is_asked) in [
        (json!([call]), json!([result]), false),
        // The user's words are in the same turn as the results.
        (json!([call]), json!([result, text]), false),
        (json!([foreign, call]), json!([result]), false),
        (json!([thought, call]), json!([result]), true),
        (json!([text]), json!([text]), true),
    ] {
        let fields = json!({
            "max_tokens": 4000, "thinking": { "type": "enabled", "budget_tokens": 2000 },
            "messages": [
                { "role": "user", "content": "Hello" },
                { "role": "assistant", "content": turn }, { "role": "user", "content": last },
            ],
        });
        let answer = client.post("/v1/messages", &asked(&fields)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = upstream.next_request().await.json();
        assert_eq!(
            sent["thinking"]["budget_tokens"] == 2000,
            is_asked,
            "{sent}"
        );
        assert_eq!(
            answer.headers.contains_key("x-weir-ignored"),
            !is_asked,
            "{sent}"
        );
    }
}
