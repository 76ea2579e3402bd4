//! Signatures of calls and texts by Google's models survive clients that keep only the fields of their dialect.
//!
//! `openai_responses.rs` and `gemini_generate.rs` test these dialects.

use serde_json::{Value, json};
use tests::speaker::Speaker;
use tests::{Client, Gateway, Reply, Upstream};

/// Two calls of one turn; Google's models sign the first. The shape is that of `google-genai` 3.6.1 (PyPI).
const PARTS: &str = r#"{"functionCall":{"id":"t1","name":"look","args":{"at":1}},"thoughtSignature":"Z2Vt"},{"functionCall":{"id":"t2","name":"look","args":{}}}"#;

fn gemini(streamed: bool) -> Reply {
    let body = format!(
        r#"{{"candidates":[{{"content":{{"role":"model","parts":[{PARTS}]}},"finishReason":"STOP"}}]}}"#
    );
    match streamed {
        true => Reply::events([body]),
        false => Reply::json(200, &serde_json::from_str(&body).expect("JSON")),
    }
}

/// Calls with a signature of Google's endpoint for clients of Chat Completions: https://ai.google.dev/gemini-api/docs/openai.
fn google_chat(streamed: bool) -> Reply {
    let call = |index: u64, id: &str, arguments: &str| json!({ "index": index, "id": id, "type": "function", "function": { "name": "look", "arguments": arguments } });
    let mut first = call(0, "t1", r#"{"at":1}"#);
    first["extra_content"] = json!({ "google": { "thought_signature": "Z2Vt" } });
    let said = json!({ "role": "assistant", "tool_calls": [first, call(1, "t2", "{}")] });
    match streamed {
        true => Reply::events([
            json!({ "choices": [{ "index": 0, "delta": said }] }).to_string(),
            json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] })
                .to_string(),
            "[DONE]".to_owned(),
        ]),
        false => Reply::json(
            200,
            &json!({ "choices": [{ "index": 0, "message": said, "finish_reason": "tool_calls" }] }),
        ),
    }
}

/// The ids and signatures of the calls that a provider gets.
fn sent_to(adapter: &str, body: &Value) -> Vec<(Value, Value)> {
    let (list, id, signature) = match adapter {
        "gemini" => (
            &body["contents"][1]["parts"],
            "/functionCall/id",
            "/thoughtSignature",
        ),
        _ => (
            &body["messages"][1]["tool_calls"],
            "/id",
            "/extra_content/google/thought_signature",
        ),
    };
    let field = |call: &Value, path| call.pointer(path).cloned().unwrap_or_default();
    let calls = list.as_array().unwrap_or_else(|| panic!("{body}"));
    let calls = calls.iter();
    calls
        .map(|call| (field(call, id), field(call, signature)))
        .collect()
}

/// The data of a stream's events.
async fn data(client: &Client, path: &str, body: &Value) -> Vec<Value> {
    let stream = client.stream(path, body).await;
    assert_eq!(stream.status, 200);
    let events = stream.rest().await;
    let data = events.iter().filter_map(|event| event.split_once("data: "));
    let data = data.filter(|(_, data)| *data != "[DONE]");
    data.map(|(_, data)| serde_json::from_str(data).expect("JSON"))
        .collect()
}

/// Sends a request of Chat Completions, and returns the next one. Like `@ai-sdk/openai-compatible` 3.0.92 (npm), the client
/// keeps of a call its id, its name, its arguments, and the signature that is there when the call begins.
async fn chat_turn(client: &Client, streamed: bool) -> Value {
    let tools = json!([{ "type": "function", "function": { "name": "look", "parameters": { "type": "object" } } }]);
    let mut body = json!({
        "model": "scripted", "stream": streamed, "tools": tools,
        "messages": [{ "role": "user", "content": "Hello" }],
    });
    let path = "/v1/chat/completions";
    let mut calls: Vec<Value> = Vec::new();
    if streamed {
        for chunk in data(client, path, &body).await {
            let deltas = chunk["choices"][0]["delta"]["tool_calls"]
                .as_array()
                .cloned();
            for delta in deltas.unwrap_or_default() {
                let index = delta["index"].as_u64().expect("an index") as usize;
                match calls.get_mut(index) {
                    None => calls.push(delta),
                    Some(call) => {
                        let arguments = &mut call["function"]["arguments"];
                        let more = delta["function"]["arguments"].as_str().expect("a piece");
                        *arguments = json!(arguments.as_str().expect("a text").to_owned() + more);
                    }
                }
            }
        }
    } else {
        let answer = client.post(path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let message = &answer.json()["choices"][0]["message"];
        calls = message["tool_calls"].as_array().expect("calls").clone();
    }
    let mut kept = Vec::new();
    for call in &calls {
        let mut copy = json!({ "id": call["id"], "type": "function", "function": {
            "name": call["function"]["name"], "arguments": call["function"]["arguments"],
        } });
        let signature = &call["extra_content"]["google"]["thought_signature"];
        if signature.is_string() {
            copy["extra_content"] = json!({ "google": { "thought_signature": signature } });
        }
        kept.push(copy);
    }
    let messages = body["messages"].as_array_mut().expect("messages");
    messages.push(json!({ "role": "assistant", "content": null, "tool_calls": kept }));
    for call in calls {
        messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": "seen" }));
    }
    body["stream"] = json!(false);
    body
}

/// Sends a request of Messages, and returns the next one. Like Claude Code, the client keeps of a call only the fields of
/// Anthropic's API, and blocks of reasoning unchanged.
async fn messages_turn(client: &Client, streamed: bool) -> Value {
    let tools = json!([{ "name": "look", "input_schema": { "type": "object" } }]);
    let mut body = json!({
        "model": "scripted", "stream": streamed, "tools": tools, "max_tokens": 100,
        "messages": [{ "role": "user", "content": "Hello" }],
    });
    let path = "/v1/messages";
    let mut blocks: Vec<Value> = Vec::new();
    if streamed {
        for event in data(client, path, &body).await {
            let delta = &event["delta"];
            if event["type"] == "content_block_start" {
                assert_eq!(event["index"], blocks.len());
                blocks.push(event["content_block"].clone());
            } else if delta["type"] == "input_json_delta" {
                let json = delta["partial_json"].as_str().expect("a text");
                let block = blocks.last_mut().expect("it began");
                block["input"] = serde_json::from_str(json).expect("the adapter has one piece");
            }
        }
    } else {
        let answer = client.post(path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        blocks = answer.json()["content"].as_array().expect("blocks").clone();
    }
    let mut results = Vec::new();
    for block in &mut blocks {
        if block["type"] == "tool_use" {
            *block = json!({
                "type": "tool_use", "id": block["id"], "name": block["name"], "input": block["input"],
            });
            results.push(
                json!({ "type": "tool_result", "tool_use_id": block["id"], "content": "seen" }),
            );
        }
    }
    let messages = body["messages"].as_array_mut().expect("messages");
    messages.push(json!({ "role": "assistant", "content": blocks }));
    messages.push(json!({ "role": "user", "content": results }));
    body["stream"] = json!(false);
    body
}

#[tokio::test]
async fn a_signed_call_comes_back_signed_to_its_provider_and_to_no_other() {
    for (adapter, reply) in [
        ("gemini", gemini as fn(bool) -> Reply),
        ("openai", google_chat),
    ] {
        for path in ["/v1/chat/completions", "/v1/messages"] {
            for streamed in [false, true] {
                let case = format!("{adapter}, {path}, {streamed}");
                let upstream = Upstream::start().await;
                let other = Upstream::start().await;
                other.always(crate::anthropic_messages::said("anthropic", "So"));
                let gateway = Gateway::builder()
                    .provider("scripted", adapter, Some(&upstream))
                    .provider("other", "anthropic", Some(&other))
                    .model("scripted", &["scripted"])
                    .model("other", &["other"])
                    .start()
                    .await;
                let client = gateway.client();
                upstream.will(reply(streamed)).will(reply(false));
                let mut body = match path {
                    "/v1/messages" => messages_turn(&client, streamed).await,
                    _ => chat_turn(&client, streamed).await,
                };
                upstream.next_request().await;
                let answer = client.post(path, &body).await;
                assert_eq!(answer.status, 200, "{case}: {}", answer.text());
                assert!(!answer.headers.contains_key("x-weir-ignored"), "{case}");
                let sent = upstream.next_request().await.json();
                let calls = [(json!("t1"), json!("Z2Vt")), (json!("t2"), Value::Null)];
                assert_eq!(sent_to(adapter, &sent), calls, "{case}: {sent}");

                body["model"] = json!("other");
                let answer = client.post(path, &body).await;
                assert_eq!(answer.status, 200, "{case}: {}", answer.text());
                let sent = other.next_request().await.json();
                let turn = &sent["messages"][1]["content"];
                let kinds: Vec<_> = turn.as_array().expect("blocks").iter().collect();
                assert!(
                    kinds.iter().all(|block| block["type"] == "tool_use"),
                    "{sent}"
                );
                assert_eq!(kinds.len(), 2, "{sent}");
                assert!(!sent.to_string().contains("Z2Vt"), "{sent}");
                let ignored = answer.headers["x-weir-ignored"].to_str().expect("ASCII");
                assert!(ignored.contains("reasoning"), "{case}: {ignored}");
            }
        }
    }
}

/// Sends a request in a dialect, and returns the next one. The client returns the response's message, blocks or items as
/// they are: in Chat Completions, its content and `reasoning_details`.
async fn text_turn(client: &Client, speaker: Speaker, streamed: bool) -> Value {
    let mut body = speaker.question("scripted", "Hello", streamed);
    let path = speaker.path("scripted", streamed);
    let (whole, events) = match streamed {
        true => (Value::Null, data(client, &path, &body).await),
        false => {
            let answer = client.post(&path, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            (answer.json(), Vec::new())
        }
    };
    let user = json!({ "role": "user", "content": "More" });
    let (field, turns) = match speaker {
        Speaker::Chat if streamed => {
            let (mut content, mut details) = (String::new(), Vec::new());
            for delta in events.iter().map(|chunk| &chunk["choices"][0]["delta"]) {
                content += delta["content"].as_str().unwrap_or_default();
                let more = delta["reasoning_details"].as_array().cloned();
                details.extend(more.unwrap_or_default());
            }
            let turn =
                json!({ "role": "assistant", "content": content, "reasoning_details": details });
            ("messages", vec![turn])
        }
        Speaker::Chat => ("messages", vec![whole["choices"][0]["message"].clone()]),
        Speaker::Messages => {
            let mut blocks = whole["content"].as_array().cloned().unwrap_or_default();
            for event in &events {
                if event["type"] == "content_block_start" {
                    blocks.push(event["content_block"].clone());
                }
                for field in ["text", "thinking"] {
                    if let Some(more) = event["delta"][field].as_str() {
                        let text = &mut blocks.last_mut().expect("it began")[field];
                        *text = json!(text.as_str().expect("a text").to_owned() + more);
                    }
                }
            }
            let turn = json!({ "role": "assistant", "content": blocks });
            ("messages", vec![turn])
        }
        Speaker::Responses => {
            let whole = events.last().map_or(&whole, |event| &event["response"]);
            let items = whole["output"].as_array().expect("items");
            ("input", items.clone())
        }
        Speaker::Gemini => unreachable!("gemini_generate.rs tests it"),
    };
    let list = body[field].as_array_mut().expect("a list");
    list.extend(turns);
    list.push(user);
    body["stream"] = json!(false);
    body
}

/// Google's models sign the end of a text, and send it in a stream with an empty text (google-genai 3.6.1 and
/// https://ai.google.dev/gemini-api/docs/thought-signatures).
#[tokio::test]
async fn a_signed_text_comes_back_signed_to_its_provider_and_to_no_other() {
    let signed = r#"{"text":"Hi "},{"text":"there","thoughtSignature":"Z2Vt"}"#;
    let signed_behind = r#"{"text":"Hi "},{"text":"there"},{"text":"","thoughtSignature":"Z2Vt"}"#;
    let expected = json!([{ "text": "Hi there", "thoughtSignature": "Z2Vt" }]);
    // Between a text and its signature is a thought.
    let apart =
        r#"{"text":"Hi"},{"text":"Hm.","thought":true},{"text":"","thoughtSignature":"Z2Vt"}"#;
    for (parts, expected) in [
        (signed, &expected),
        (signed_behind, &expected),
        (apart, &Value::Null),
    ] {
        for speaker in [Speaker::Chat, Speaker::Messages, Speaker::Responses] {
            for streamed in [false, true] {
                let case = format!("{parts} to {speaker:?}, streamed: {streamed}");
                let (upstream, other) = (Upstream::start().await, Upstream::start().await);
                other.always(crate::anthropic_messages::said("anthropic", "So"));
                let body = format!(
                    r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"finishReason":"STOP"}}]}}"#
                );
                let whole = Reply::json(200, &serde_json::from_str(&body).expect("JSON"));
                let first = match streamed {
                    true => Reply::events([body]),
                    false => whole.clone(),
                };
                upstream.will(first).will(whole);
                let gateway = Gateway::builder()
                    .provider("scripted", "gemini", Some(&upstream))
                    .provider("other", "anthropic", Some(&other))
                    .model("scripted", &["scripted"])
                    .model("other", &["other"])
                    .start()
                    .await;
                let client = gateway.client();
                let mut body = text_turn(&client, speaker, streamed).await;
                upstream.next_request().await;
                let path = speaker.path("scripted", false);
                let answer = client.post(&path, &body).await;
                assert_eq!(answer.status, 200, "{case}: {}", answer.text());
                let sent = upstream.next_request().await.json();
                let turn = &sent["contents"][1];
                assert_eq!(turn["role"], "model", "{case}: {sent}");
                match expected.is_null() {
                    true => assert!(turn.to_string().contains("Z2Vt"), "{case}: {sent}"),
                    false => assert_eq!(&turn["parts"], expected, "{case}: {sent}"),
                }

                body["model"] = json!("other");
                let answer = client.post(&path, &body).await;
                assert_eq!(answer.status, 200, "{case}: {}", answer.text());
                let sent = other.next_request().await.json();
                assert!(!sent.to_string().contains("Z2Vt"), "{case}: {sent}");
                assert!(
                    !sent.to_string().contains("\"text\":\"\""),
                    "{case}: {sent}"
                );
                let ignored = answer.headers["x-weir-ignored"].to_str().expect("ASCII");
                assert!(ignored.contains("reasoning"), "{case}: {ignored}");
            }
        }
    }
}

/// The signature of a call in LiteLLM's fields, and one of another server, reach the provider, too.
#[tokio::test]
async fn signatures_of_other_gateways_reach_the_provider() {
    let upstream = Upstream::start().await;
    upstream.always(gemini(false));
    let gateway = Gateway::with_adapter("gemini", &upstream).await;
    let function = json!({ "name": "look", "arguments": "{}" });
    let signed = json!({ "thought_signature": "Z2Vt" });
    let mut signed_function = function.clone();
    signed_function["provider_specific_fields"] = signed.clone();
    for call in [
        json!({ "function": function, "extra_content": { "google": signed, "other": 1 } }),
        // `get_thought_signature_from_tool` in LiteLLM 1.110.2 (PyPI) reads these.
        json!({ "function": function, "provider_specific_fields": signed }),
        json!({ "function": signed_function }),
    ] {
        let mut call = call;
        call["id"] = json!("t1");
        call["type"] = json!("function");
        let body = json!({ "model": "scripted", "messages": [
            { "role": "user", "content": "Hello" },
            { "role": "assistant", "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "t1", "content": "seen" },
        ] });
        let answer = gateway.client().post("/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = upstream.next_request().await.json();
        let calls = [(json!("t1"), json!("Z2Vt"))];
        assert_eq!(sent_to("gemini", &sent), calls, "{sent}");
    }
}
