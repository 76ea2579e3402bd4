//! `POST /code`: like `/chat`, for models that can call tools.

use serde_json::json;
use tests::{Gateway, Reply, Upstream, chat};

#[tokio::test]
async fn code_hands_tools_on_and_calls_back_plain_and_streamed() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let call = json!({
        "role": "assistant", "content": null,
        "tool_calls": [{ "id": "call_1", "type": "function", "function": { "name": "read", "arguments": "{\"file\":\"a\"}" } }],
    });
    upstream.will(Reply::chat_message(&call, "tool_calls"));
    let mut asked = chat("scripted", "fix it");
    asked["tools"] = json!([{
        "type": "function",
        "function": { "name": "read", "parameters": { "type": "object", "properties": { "file": { "type": "string" } } } },
    }]);
    let answer = gateway.client().post("/code", &asked).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let message = answer.json()["choices"][0]["message"].clone();
    assert_eq!(message["tool_calls"][0]["function"]["name"], "read");
    let sent = upstream.next_request().await.json();
    assert_eq!(sent["tools"][0]["function"]["name"], "read");

    // The result of the call is sent back, and the rest of the response is streamed.
    upstream.will_stream(["fi", "xed"]);
    let messages = asked["messages"].as_array_mut().expect("a list");
    messages.push(message);
    messages.push(json!({ "role": "tool", "tool_call_id": "call_1", "content": "text of a" }));
    let stream = gateway.client().stream("/code", &asked).await;
    assert_eq!(stream.content().await, "fixed");
    let sent = upstream.next_request().await.json();
    assert_eq!(sent["messages"][2]["content"], "text of a");
}

#[tokio::test]
async fn code_refuses_what_its_model_does_not_take_by_the_documented_codes() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables(
            "[models.mute]\ncontext_window = 1000\nmax_output_tokens = 100\ndefault_output_tokens = 100\n\
             upstreams = [{ provider = \"scripted\" }]\nprice = { input = 1, output = 2 }\n\
             [models.short]\ncontext_window = 1000\nmax_output_tokens = 100\ndefault_output_tokens = 100\n\
             supports_tools = true\nupstreams = [{ provider = \"scripted\" }]\nprice = { input = 1, output = 2 }\n",
        )
        .start()
        .await;
    let long = "x".repeat(8_000);
    for (model, text, code, param) in [
        ("mute", "hello", "MODEL_NOT_SUPPORTED", "model"),
        ("none", "hello", "UNKNOWN_MODEL", "model"),
        ("short", &*long, "CONTEXT_LENGTH_EXCEEDED", "messages"),
    ] {
        for stream in [false, true] {
            let mut asked = chat(model, text);
            asked["stream"] = json!(stream);
            let refused = gateway.client().post("/code", &asked).await;
            assert_eq!(refused.error(400, code)["param"], param);
        }
    }
    assert_eq!(upstream.count(), 0);
}
