//! The pace of fast streams: weir reads them together, and only what can wait waits.

use futures_util::FutureExt as _;
use serde_json::json;
use tests::{EventStream, Gate, Gateway, Reply, Upstream};

/// A period that no test outlives.
const HOUR: &str = "[limits]\nstream_flush_ms = 3600000\n";

/// Plain requests that are served while a stream waits. Without the wait, its next piece arrives meanwhile.
const PLAIN_REQUESTS: usize = 30;

async fn gateway(upstream: &Upstream, tables: &str) -> Gateway {
    let gateway = Gateway::builder();
    gateway
        .upstream("scripted", upstream)
        .tables(tables)
        .start()
        .await
}

/// Reads the next chunk's text, and then lets the upstream send its next piece.
async fn text_before(stream: &mut EventStream, gate: &Gate) -> String {
    let chunk = stream.next_chunk().await;
    gate.open();
    let text = chunk["choices"][0]["delta"]["content"].as_str();
    text.unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_fast_stream_waits_for_a_tick() {
    let upstream = Upstream::start().await;
    let gates = [Gate::new(), Gate::new()];
    let reply = Reply::chat_stream(["one ", "two ", "three"]);
    let reply = reply.gate_before_piece(1, &gates[0]);
    upstream.will(reply.gate_before_piece(2, &gates[1]));
    let gateway = gateway(&upstream, HOUR).await;
    let mut stream = gateway.stream("scripted", "count").await;
    assert_eq!(text_before(&mut stream, &gates[0]).await, "one ");
    assert_eq!(text_before(&mut stream, &gates[1]).await, "two ");
    // The first tick of a worker thread comes after an eighth of the period at the earliest.
    for _ in 0..PLAIN_REQUESTS {
        upstream.will(Reply::chat("meanwhile"));
        gateway.chat("scripted", "hello").await;
    }
    assert!(stream.next_chunk().now_or_never().is_none());
}

#[tokio::test]
async fn a_stream_is_whole_after_its_ticks() {
    let texts: Vec<_> = (0..20).map(|number| format!("{number} ")).collect();
    let gates: Vec<_> = texts.iter().map(|_| Gate::new()).collect();
    let mut reply = Reply::chat_stream(texts.iter().map(String::as_str));
    for (gate, piece) in gates.iter().zip(1..texts.len()) {
        reply = reply.gate_before_piece(piece, gate);
    }
    let upstream = Upstream::start().await;
    upstream.will(reply);
    let gateway = gateway(&upstream, "[limits]\nstream_flush_ms = 50\n").await;
    let mut stream = gateway.stream("scripted", "count").await;
    for (gate, text) in gates.iter().zip(&texts) {
        assert_eq!(text_before(&mut stream, gate).await, *text);
    }
    assert!(stream.is_whole().await);
}

#[tokio::test]
async fn nothing_waits_after_the_end_of_a_call() {
    let pieces = [
        &[
            r#"{"type":"message_start","message":{"id":"msg_1","model":"m","content":[],"usage":{"input_tokens":9,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"look","input":{}}}"#,
        ][..],
        &[r#"{"type":"content_block_stop","index":0}"#],
        &[
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}"#,
            r#"{"type":"message_stop"}"#,
        ],
    ]
    .map(|events| {
        let events = events.iter().map(|event| format!("data: {event}\n\n"));
        events.collect::<String>()
    });
    let gates = [Gate::new(), Gate::new()];
    let reply = Reply::new(200).header("content-type", "text/event-stream");
    let cuts = [pieces[0].len(), pieces[0].len() + pieces[1].len()];
    let reply = reply.body(pieces.concat()).chunked().split_at(cuts);
    let reply = reply.gate_before_piece(1, &gates[0]);
    let upstream = Upstream::start().await;
    upstream.will(reply.gate_before_piece(2, &gates[1]));
    let gateway = Gateway::builder()
        .provider("scripted", "anthropic", Some(&upstream))
        .model("scripted", &["scripted"])
        .tables(HOUR)
        .start()
        .await;
    let request = json!({
        "model": "scripted", "max_tokens": 100, "stream": true,
        "messages": [{ "role": "user", "content": "Look." }],
        "tools": [{ "name": "look", "input_schema": { "type": "object" } }],
    });
    let mut stream = gateway.client().stream("/v1/messages", &request).await;
    for (gate, event) in gates
        .iter()
        .zip(["content_block_start", "content_block_stop"])
    {
        while !stream.next().await.expect("an event").contains(event) {}
        gate.open();
    }
    while !stream
        .next()
        .await
        .expect("an event")
        .contains("message_stop")
    {}
}

#[tokio::test]
async fn a_period_of_zero_reads_each_piece_at_once() {
    let upstream = Upstream::start().await;
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let mut reply = Reply::chat_stream(["one ", "two ", "three ", "four"]);
    for (gate, piece) in gates.iter().zip(1..) {
        reply = reply.gate_before_piece(piece, gate);
    }
    upstream.will(reply);
    let gateway = gateway(&upstream, "[limits]\nstream_flush_ms = 0\n").await;
    let mut stream = gateway.stream("scripted", "count").await;
    for (gate, text) in gates.iter().zip(["one ", "two ", "three "]) {
        assert_eq!(text_before(&mut stream, gate).await, text);
    }
    assert!(stream.is_whole().await);
}
