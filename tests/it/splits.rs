//! An upstream's response, cut at every byte position, is the same response to the client.
//!
//! The adapter's own tests do this without a socket; here the cuts travel over TCP, through the HTTP client and the
//! sandbox. A gateway for every position would take minutes; each position is therefore one request over a kept
//! connection.

use serde_json::Value;
use tests::{Gateway, Reply, Upstream, chat, chunks};

/// Text with characters of 2, 3 and 4 bytes, CR LF line ends, a comment, a BOM, multi-line data, tool calls and
/// usage: the hard cases of framing.
fn stream() -> String {
    let data = [
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"żółw 🐢 "}}]}"#,
        "{\"choices\":[{\"index\":0,\r\ndata: \"delta\":{\"content\":\"漢字\"}}]}",
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":1}"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}"#,
        "[DONE]",
    ];
    let mut text = "\u{feff}: a comment\r\n\r\n".to_owned();
    for data in data {
        text.push_str("data: ");
        text.push_str(data);
        text.push_str("\r\n\r\n");
    }
    text
}

/// Returns a client's view of a stream, independent of its pieces.
fn understood(events: &[String]) -> (String, String, String, Value) {
    assert_eq!(
        events.last().map(String::as_str),
        Some("data: [DONE]"),
        "{events:?}"
    );
    let chunks = chunks(events);
    let delta = |path: &str| -> String {
        chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"].pointer(path)?.as_str())
            .collect()
    };
    let last = chunks.last().expect("a last chunk");
    (
        delta("/content"),
        delta("/tool_calls/0/function/arguments"),
        last["choices"][0]["finish_reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        last["usage"].clone(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_split_of_a_stream_is_the_same_stream() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let body = stream();
    let reply = Reply::new(200)
        .header("content-type", "text/event-stream")
        .body(body.clone())
        .chunked();
    upstream.will(reply.clone());
    let ask = async || {
        let stream = gateway
            .client()
            .stream("/chat", &chat("scripted", "x"))
            .await;
        understood(&stream.rest().await)
    };
    let whole = ask().await;
    assert_eq!(whole.0, "żółw 🐢 漢字");
    assert_eq!((&*whole.1, &*whole.2), (r#"{"a":1}"#, "tool_calls"));
    assert_eq!(whole.3["total_tokens"], 12);
    for at in 1..body.len() {
        upstream.will(reply.clone().split_at([at]));
        assert_eq!(ask().await, whole, "cut at {at}");
    }
    upstream.will(reply.one_byte_at_a_time());
    assert_eq!(ask().await, whole, "one byte at a time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_split_of_a_plain_answer_is_the_same_answer() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let reply = Reply::chat("żółw 🐢 漢字");
    let length = reply.whole_body().len();
    for at in 1..length {
        upstream.will(reply.clone().split_at([at]));
        assert_eq!(
            gateway.chat("scripted", "x").await.content(),
            "żółw 🐢 漢字",
            "cut at {at}"
        );
    }
    upstream.will(reply.one_byte_at_a_time());
    assert_eq!(
        gateway.chat("scripted", "x").await.content(),
        "żółw 🐢 漢字"
    );
}
