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

#[tokio::test]
async fn a_slow_reader_cannot_outstay_the_deadline() {
    let upstream = Upstream::start().await;
    let words = vec!["x".repeat(10_000); 1_500];
    upstream.always(Reply::chat_stream(words.iter().map(String::as_str)));
    let gateway = hurried(&upstream, "total_ms = 800").await;
    let mut body = chat("scripted", "x");
    body["max_tokens"] = 1_000_000.into();
    let mut stream = gateway.client().stream("/chat", &body).await;
    stream.next_chunk().await;
    // The client reads nothing for as long as the request is under way.
    tests::patiently(async {
        while !gateway.app().tasks.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    upstream.until_hung_up().await;
    assert!(!stream.is_whole().await);
}

#[tokio::test]
async fn a_guest_that_dawdles_in_every_call_is_bounded_by_the_deadline_too() {
    let gateway = Gateway::builder()
        .guest("hostile", tests::guests::misbehaving(), None)
        .tables("[timeouts]\ntotal_ms = 600\n")
        .start()
        .await;
    let started = Instant::now();
    let waits: Vec<_> = (0..60)
        .map(|_| serde_json::json!({ "Wait": 100 }))
        .collect();
    let command = serde_json::json!({ "behave": "script", "steps": waits });
    let answer = gateway.chat("hostile", &command.to_string()).await;
    answer.error(504, "UPSTREAM_TIMEOUT");
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_server_that_accepts_and_stays_silent_counts_as_unreachable() {
    let second = Upstream::start().await;
    second.always(Reply::chat("from the second"));
    // Speaks no TLS: the kernel accepts, and the server stays silent.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = silent
        .local_addr()
        .map(|address| (silent, address))
        .expect("an address");
    let gateway = Gateway::builder()
        .tables(&format!(
            "[timeouts]\nconnect_ms = 200\n\
             [providers.silent]\nadapter = \"openai\"\nbase_url = \"https://{}\"\n",
            silent.1
        ))
        .provider("second", "openai", Some(&second))
        .model("both", &["silent", "second"])
        .start()
        .await;
    let started = Instant::now();
    assert_eq!(gateway.chat("both", "x").await.content(), "from the second");
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

/// Clients and proxies treat a connection without a byte as dead.
#[tokio::test]
async fn a_stream_with_nothing_to_say_is_kept_alive() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat_stream(["at ", "last"]).after_gate(&gate));
    let gateway = Gateway::with_upstream(&upstream).await;
    // The headers arrive before the response's content.
    let mut stream = gateway.stream("scripted", "x").await;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.next().await.as_deref(), Some(": keep-alive"));
    gate.open();
    assert_eq!(stream.content().await, "at last");
}

/// A comment is no part of the response: another attempt may follow it, and so may an error.
#[tokio::test]
async fn what_fails_behind_a_comment_is_tried_again_and_ends_the_stream_with_its_error() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::error(500, "broken").after_gate(&gate));
    upstream.will(Reply::error(500, "still broken"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let mut stream = gateway.stream("scripted", "x").await;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.next().await.as_deref(), Some(": keep-alive"));
    gate.open();
    let events = stream.rest().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].starts_with("event: error\n") && events[0].contains("UPSTREAM_UNAVAILABLE"),
        "{events:?}"
    );
    assert_eq!(upstream.count(), 2);
}
