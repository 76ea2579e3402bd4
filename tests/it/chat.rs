//! `POST /chat` and `POST /v1/chat/completions` through the demo adapter.

use serde_json::json;
use tests::{Gateway, chat, chunks};

#[tokio::test]
async fn answers_a_plain_request() {
    let gateway = Gateway::start().await;
    for path in ["/chat", "/v1/chat/completions"] {
        let answer = gateway.client().post(path, &chat("demo", "Hello")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.headers["content-type"], "application/json");
        let json = answer.json();
        assert_eq!(json["object"], "chat.completion");
        assert_eq!(json["model"], "demo");
        assert_eq!(json["choices"][0]["finish_reason"], "stop");
        assert_eq!(answer.content(), "You said: Hello");
        let usage = &json["usage"];
        let sum = usage["prompt_tokens"]
            .as_u64()
            .zip(usage["completion_tokens"].as_u64());
        assert_eq!(
            sum.map(|(input, output)| input + output),
            usage["total_tokens"].as_u64()
        );
        assert!(
            json["id"]
                .as_str()
                .is_some_and(|id| id.starts_with("chatcmpl-"))
        );
    }
}

#[tokio::test]
async fn streams_the_same_answer_word_by_word() {
    let gateway = Gateway::start().await;
    let stream = gateway.stream("demo", "Hello to all of you").await;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    let events = stream.rest().await;
    assert_eq!(events.last().map(String::as_str), Some("data: [DONE]"));
    let chunks = chunks(&events);
    assert!(chunks.len() > 3, "{events:?}");
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "You said: Hello to all of you");
    let last = chunks.last().expect("a last chunk");
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert!(
        last["usage"]["completion_tokens"]
            .as_u64()
            .is_some_and(|tokens| tokens > 0)
    );
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]));
}

#[tokio::test]
async fn a_client_that_asks_for_usage_gets_it_in_a_chunk_of_its_own() {
    let gateway = Gateway::start().await;
    let mut body = chat("demo", "Hello");
    body["stream_options"] = json!({ "include_usage": true });
    let events = gateway.client().stream("/chat", &body).await.rest().await;
    let chunks = chunks(&events);
    let last = chunks.last().expect("a last chunk");
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["total_tokens"].is_u64());
}

#[tokio::test]
async fn a_tool_call_comes_plain_and_streamed() {
    let gateway = Gateway::start().await;
    let mut body = chat("demo", r#"/tool weather {"city":"Gdynia"}"#);
    body["tools"] = json!([{ "type": "function", "function": { "name": "weather" } }]);
    let plain = gateway.client().post("/chat", &body).await.json();
    let choice = &plain["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{plain}");
    let call = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "weather");
    assert_eq!(call["arguments"], r#"{"city":"Gdynia"}"#);

    let events = gateway.client().stream("/chat", &body).await.rest().await;
    let chunks = chunks(&events);
    let calls: Vec<_> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0])
        .collect();
    assert!(
        calls
            .iter()
            .any(|call| call["function"]["name"] == "weather"),
        "{events:?}"
    );
    let arguments: String = calls
        .iter()
        .filter_map(|call| call["function"]["arguments"].as_str())
        .collect();
    assert_eq!(arguments, r#"{"city":"Gdynia"}"#);
}

#[tokio::test]
async fn reasoning_comes_apart_from_the_answer() {
    let gateway = Gateway::start().await;
    let answer = gateway.chat("demo", "/reason why").await.json();
    let message = &answer["choices"][0]["message"];
    assert!(
        message["reasoning_content"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{answer}"
    );
    assert!(
        message["content"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{answer}"
    );
}

#[tokio::test]
async fn the_output_limit_cuts_the_answer() {
    let gateway = Gateway::start().await;
    let mut body = chat("demo", "/long 500");
    body["max_tokens"] = json!(20);
    let answer = gateway.client().post("/chat", &body).await.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
    assert_eq!(answer["usage"]["completion_tokens"], 20);
}

#[tokio::test]
async fn a_long_answer_arrives_whole() {
    let gateway = Gateway::start().await;
    let mut body = chat("demo", "/long 3000");
    body["max_tokens"] = json!(10_000);
    let plain = gateway.client().post("/chat", &body).await.content();
    let streamed = gateway
        .client()
        .stream("/chat", &body)
        .await
        .content()
        .await;
    assert_eq!(plain.split_whitespace().count(), 3000);
    assert_eq!(plain, streamed);
}

#[tokio::test]
async fn violating_a_limit_of_the_model_is_an_error_of_its_own() {
    let gateway = Gateway::builder()
        .provider("local", "demo", None)
        .tables(
            "[models.small]\ncontext_window = 1000\nmax_output_tokens = 500\n\
             default_output_tokens = 400\nupstreams = [{ provider = \"local\" }]\n\
             price = { input = 1, output = 2 }\n",
        )
        .start()
        .await;
    let post = async |change: &dyn Fn(&mut serde_json::Value)| {
        let mut body = chat("small", "Hello");
        change(&mut body);
        gateway.client().post("/chat", &body).await
    };
    let error = post(&|body| body["model"] = json!("other"))
        .await
        .error(400, "UNKNOWN_MODEL");
    assert_eq!(error["param"], "model");
    let error = post(&|body| body["max_tokens"] = json!(501))
        .await
        .error(400, "OUTPUT_LIMIT_EXCEEDED");
    assert_eq!(error["param"], "max_tokens");
    let error = post(&|body| body["messages"][0]["content"] = json!("x".repeat(4_000)))
        .await
        .error(400, "CONTEXT_LENGTH_EXCEEDED");
    assert_eq!(error["param"], "messages");
    post(&|body| {
        body["max_tokens"] = json!(500);
        body["messages"][0]["content"] = json!("x".repeat(2_004));
    })
    .await
    .error(400, "CONTEXT_LENGTH_EXCEEDED");
    let tool = json!([{ "type": "function", "function": { "name": "f" } }]);
    let error = post(&|body| body["tools"] = tool.clone())
        .await
        .error(400, "MODEL_NOT_SUPPORTED");
    assert_eq!(error["param"], "tools");
    let image =
        json!([{ "type": "image_url", "image_url": { "url": "https://example.com/a.png" } }]);
    let error = post(&|body| body["messages"][0]["content"] = image.clone())
        .await
        .error(400, "VISION_NOT_SUPPORTED");
    assert_eq!(error["param"], "messages[0].content");

    // Exactly at the limits, and a long input shortens the default output limit.
    assert_eq!(
        post(&|body| body["max_tokens"] = json!(500)).await.status,
        200
    );
    let long = post(&|body| body["messages"][0]["content"] = json!("x".repeat(3_900))).await;
    assert_eq!(long.status, 200, "{}", long.text());
}
