//! Upstreams that are slow, silent or endless.

use std::time::{Duration, Instant};

use tests::{Gate, Gateway, Reply, Upstream, chat};

async fn hurried(upstream: &Upstream, timeouts: &str) -> Gateway {
    Gateway::builder()
        .upstream("scripted", upstream)
        .tables(&format!("[timeouts]\n{timeouts}\n"))
        .start()
        .await
}

#[tokio::test]
async fn a_stream_must_begin_in_time() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::never());
    let gateway = hurried(&upstream, "first_byte_ms = 200").await;
    let stream = gateway.stream("scripted", "x").await;
    assert_eq!(stream.status, 504);
    upstream.until_closed().await;
    assert_eq!(upstream.count(), 1, "never tried again after a time-out");
}

#[tokio::test]
async fn a_plain_answer_may_take_longer_than_a_stream_may_to_begin() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat("late").after(Duration::from_millis(400)));
    let gateway = hurried(&upstream, "first_byte_ms = 200").await;
    assert_eq!(gateway.chat("scripted", "x").await.content(), "late");
}

#[tokio::test]
async fn a_pause_in_the_answer_is_bounded() {
    let upstream = Upstream::start().await;
    let gateway = hurried(&upstream, "idle_ms = 200").await;
    upstream.will(Reply::chat_stream(["one ", "two "]).gate_before_piece(1, &Gate::new()));
    let events = gateway.stream("scripted", "x").await.rest().await;
    let last = events.last().expect("a last event");
    assert!(
        last.starts_with("event: error\n") && last.contains("UPSTREAM_TIMEOUT"),
        "{events:?}"
    );
    upstream.until_hung_up().await;
    upstream.will(Reply::chat("whole").silent_after(20));
    gateway
        .chat("scripted", "x")
        .await
        .error(504, "UPSTREAM_TIMEOUT");
    upstream.until_hung_up().await;
}

#[tokio::test]
async fn the_whole_request_is_bounded_however_the_bytes_drip() {
    let upstream = Upstream::start().await;
    let gateway = hurried(&upstream, "idle_ms = 300\ntotal_ms = 1000").await;
    for reply in [
        Reply::drip(Duration::from_millis(100)),
        Reply::drip_head(Duration::from_millis(100)),
    ] {
        upstream.will(reply);
        let started = Instant::now();
        gateway
            .chat("scripted", "x")
            .await
            .error(504, "UPSTREAM_TIMEOUT");
        assert!(
            started.elapsed() >= Duration::from_millis(900),
            "not the idle time-out"
        );
        upstream.until_hung_up().await;
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat(&"x".repeat(100_000)));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nanswer_bytes = 50000\n")
        .start()
        .await;
    let answer = gateway.client().post("/chat", &chat("scripted", "x")).await;
    answer.error(502, "UPSTREAM_ERROR");
}
