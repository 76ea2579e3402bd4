//! Models that OpenAI's Responses API serves, for clients of each dialect.
//!
//! The provider's messages have the fields of the types in openai-python 3.52.0 (`types/responses/`).

use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::{Gateway, Reply, Upstream, chat};

/// A gateway whose model `scripted` uses the Responses API, and whose model `plain` does not.
fn builder(upstream: &Upstream) -> Builder {
    let model = |id: &str, options: &str| {
        format!(
            "[models.{id}]\ncontext_window = 100000\nmax_output_tokens = 10000\ndefault_output_tokens = 1000\n\
             supports_tools = true\nprice = {{ input = 1, cache_read = 0.1, output = 2 }}\n\
             upstreams = [{{ provider = \"p\", model = \"gpt-test\"{options} }}]\n"
        )
    };
    Gateway::builder()
        .provider("p", "openai", Some(upstream))
        .tables(&model(
            "scripted",
            ", options = { api = \"responses\", efforts = \"low, medium\" }",
        ))
        .tables(&model("plain", ""))
}

/// A response that reasons in sealed form and calls a tool.
fn calling() -> Reply {
    Reply::json(
        200,
        &json!({
            "id": "resp_1", "model": "gpt-test-1", "status": "completed", "error": null,
            "output": [
                { "id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2VhbGVk" },
                { "id": "fc_1", "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"at\":1}" },
            ],
            "usage": {
                "input_tokens": 1000, "input_tokens_details": { "cached_tokens": 400, "cache_write_tokens": 0 },
                "output_tokens": 100, "output_tokens_details": { "reasoning_tokens": 60 }, "total_tokens": 1100,
            },
        }),
    )
}

fn saying(text: &str) -> Reply {
    let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
    Reply::json(
        200,
        &json!({
            "id": "resp_2", "model": "gpt-test-1", "status": "completed", "error": null,
            "output": [{ "id": "msg_1", "type": "message", "role": "assistant", "content": content }],
            "usage": { "input_tokens": 10, "output_tokens": 2, "total_tokens": 12 },
        }),
    )
}

/// The items of a turn that was replayed: its sealed reasoning, its call, and the result.
fn replayed() -> Value {
    json!([
        { "type": "reasoning", "summary": [], "encrypted_content": "c2VhbGVk" },
        { "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"at\":1}" },
        { "type": "function_call_output", "call_id": "c1", "output": "A cat" },
    ])
}

#[tokio::test]
async fn the_catalog_decides_which_api_serves_a_model() {
    let upstream = Upstream::start().await;
    let gateway = builder(&upstream).start().await;
    upstream.will(saying("Hello"));
    let mut body = chat("scripted", "Hi");
    body["reasoning_effort"] = json!("high");
    let answer = gateway.client().post("/v1/chat/completions", &body).await;
    assert_eq!(answer.content(), "Hello", "{}", answer.text());
    let sent = upstream.next_request().await;
    assert!(sent.path.ends_with("/responses"), "{}", sent.path);
    let sent = sent.json();
    assert_eq!(sent["model"], "gpt-test");
    assert_eq!(sent["store"], false);
    assert_eq!(
        sent["reasoning"]["effort"], "medium",
        "the model's greatest"
    );
    upstream.will(Reply::chat("Hello"));
    let answer = gateway
        .client()
        .post("/v1/chat/completions", &chat("plain", "Hi"))
        .await;
    assert_eq!(answer.content(), "Hello", "{}", answer.text());
    let sent = upstream.next_request().await;
    assert!(sent.path.ends_with("/chat/completions"), "{}", sent.path);
}

#[tokio::test]
async fn reasoning_is_carried_between_tool_calls_for_clients_of_chat() {
    let upstream = Upstream::start().await;
    let gateway = builder(&upstream).start().await;
    let tools = json!([{ "type": "function", "function": { "name": "look", "parameters": { "type": "object" } } }]);
    let mut body = chat("scripted", "Look!");
    body["tools"] = tools;
    upstream.will(calling());
    let answer = gateway.client().post("/v1/chat/completions", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    // 600 new tokens at 1 USD, 400 cached ones at 0.1 and 100 written ones at 2 per million, times 1.4.
    assert_eq!(answer["usage"]["credits"], 1.176);
    upstream.next_request().await;
    let said = answer["choices"][0]["message"].clone();
    let messages = body["messages"].as_array_mut().expect("messages");
    messages.push(said);
    messages.push(json!({ "role": "tool", "tool_call_id": "c1", "content": "A cat" }));
    upstream.will(saying("It is a cat."));
    let answer = gateway.client().post("/v1/chat/completions", &body).await;
    assert_eq!(answer.content(), "It is a cat.", "{}", answer.text());
    let sent = upstream.next_request().await.json();
    let input = sent["input"].as_array().expect("items");
    assert_eq!(json!(input[1..]), replayed(), "{sent}");
}

#[tokio::test]
async fn reasoning_is_carried_between_tool_calls_for_clients_of_messages() {
    let upstream = Upstream::start().await;
    let gateway = builder(&upstream).start().await;
    let mut body = json!({
        "model": "scripted", "max_tokens": 1000, "messages": [{ "role": "user", "content": "Look!" }],
        "tools": [{ "name": "look", "input_schema": { "type": "object" } }],
    });
    upstream.will(calling());
    let answer = gateway.client().post("/v1/messages", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["stop_reason"], "tool_use");
    upstream.next_request().await;
    let messages = body["messages"].as_array_mut().expect("messages");
    messages.push(json!({ "role": "assistant", "content": answer["content"] }));
    let result = json!([{ "type": "tool_result", "tool_use_id": "c1", "content": "A cat" }]);
    messages.push(json!({ "role": "user", "content": result }));
    upstream.will(saying("It is a cat."));
    let answer = gateway.client().post("/v1/messages", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.next_request().await.json();
    let input = sent["input"].as_array().expect("items");
    assert_eq!(json!(input[1..]), replayed(), "{sent}");
}

#[tokio::test]
async fn reasoning_is_carried_between_tool_calls_for_clients_of_responses() {
    let upstream = Upstream::start().await;
    let gateway = builder(&upstream).start().await;
    let tools = json!([
        { "type": "function", "name": "look", "parameters": { "type": "object" } },
        { "type": "custom", "name": "patch", "format": { "type": "grammar", "syntax": "lark", "definition": "a" } },
    ]);
    let mut body = json!({
        "model": "scripted", "store": false, "tools": tools,
        "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Look!" }] }],
    });
    upstream.will(calling());
    let answer = gateway.client().post("/v1/responses", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.next_request().await.json();
    assert_eq!(sent["tools"][1], tools[1], "a grammar has its own place");
    let output = answer.json()["output"].clone();
    let input = body["input"].as_array_mut().expect("items");
    input.extend(output.as_array().expect("items").iter().cloned());
    input.push(json!({ "type": "function_call_output", "call_id": "c1", "output": "A cat" }));
    upstream.will(saying("It is a cat."));
    let answer = gateway.client().post("/v1/responses", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.next_request().await.json();
    let input = sent["input"].as_array().expect("items");
    assert_eq!(json!(input[1..]), replayed(), "{sent}");
}

#[tokio::test]
async fn a_model_with_an_option_that_its_adapter_lacks_is_refused_by_its_place() {
    let upstream = Upstream::start().await;
    for (options, place) in [
        ("{ api = \"chat\" }", "options.api: must be"),
        (
            "{ apis = \"responses\" }",
            "options.apis: the adapter \"openai\" does not have",
        ),
    ] {
        let gateway = Gateway::builder().provider("p", "openai", Some(&upstream)).tables(&format!(
            "[models.wrong]\ncontext_window = 1000\nmax_output_tokens = 100\ndefault_output_tokens = 100\n\
             price = {{ input = 1, output = 2 }}\nupstreams = [{{ provider = \"p\", options = {options} }}]\n"
        ));
        let error = gateway.try_start().await.err().expect("an invalid option");
        let error = format!("{error:#}");
        let place = format!("models.\"wrong\".upstreams[0].{place}");
        assert!(error.contains(&place), "{error}");
    }
}
