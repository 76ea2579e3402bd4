//! Clients that disconnect, and clients that do not read.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tests::gateway::Builder;
use tests::recording::{FORM, form, wav};
use tests::{Gate, Gateway, Reply, Upstream, chat, patiently};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

#[tokio::test]
async fn the_answer_is_read_to_its_end_after_the_client_hung_up() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat_stream(["one ", "two ", "three"]).gate_before_piece(1, &gate));
    let gateway = Gateway::with_upstream(&upstream).await;
    let mut stream = gateway.stream("scripted", "count").await;
    stream.next_chunk().await;
    drop(stream);
    gate.open();
    patiently(until_idle(&gateway)).await;
    // A connection that was read to its end can serve the next request.
    assert_eq!(upstream.hang_ups(), 0);
    upstream.will(Reply::chat("again"));
    assert_eq!(gateway.chat("scripted", "x").await.content(), "again");
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn an_upstream_that_goes_on_for_too_long_after_that_is_cut() {
    for reply in [
        Reply::never(),
        Reply::chat_stream(["one ", "two "]).silent_after(200),
    ] {
        let upstream = Upstream::start().await;
        upstream.will(reply);
        let gateway = Gateway::builder()
            .upstream("scripted", &upstream)
            .tables("[limits]\nhang_up_drain_ms = 200\n")
            .start()
            .await;
        let client = gateway.client();
        let request =
            tokio::spawn(async move { client.stream("/chat", &chat("scripted", "x")).await });
        upstream.next_request().await;
        request.abort();
        let _ = request.await;
        patiently(upstream.until_hung_up()).await;
        patiently(until_idle(&gateway)).await;
    }
}

/// A request of each kind without a stream, and its provider's response.
pub(crate) fn plain_requests() -> Vec<(&'static str, &'static str, Bytes, Reply)> {
    let json = "application/json";
    let body = |body: Value| Bytes::from(body.to_string());
    let data = serde_json::json!([{ "object": "embedding", "index": 0, "embedding": [1] }]);
    let usage = serde_json::json!({ "prompt_tokens": 7, "total_tokens": 7 });
    let vectors =
        serde_json::json!({ "object": "list", "data": data, "model": "v", "usage": usage });
    let ranking = serde_json::json!({
        "results": [{ "index": 0, "relevance_score": 1 }], "meta": { "billed_units": { "search_units": 1 } },
    });
    let verdicts =
        serde_json::json!({ "id": "m", "model": "j", "results": [{ "flagged": false }] });
    let images = serde_json::json!({ "created": 1, "data": [{ "b64_json": "b25l" }] });
    let spoken = Reply::new(200)
        .header("content-type", "audio/mpeg")
        .body(b"spoken".to_vec());
    vec![
        (
            "/chat",
            json,
            body(chat("scripted", "x")),
            Reply::chat_with_usage("late", 50, 9),
        ),
        (
            "/v1/images/generations",
            json,
            body(serde_json::json!({ "model": "painter", "prompt": "a cat" })),
            Reply::json(200, &images),
        ),
        (
            "/v1/embeddings",
            json,
            body(serde_json::json!({ "model": "vectors", "input": "text" })),
            Reply::json(200, &vectors),
        ),
        (
            "/v1/rerank",
            json,
            body(serde_json::json!({ "model": "order", "query": "q", "documents": ["a"] })),
            Reply::json(200, &ranking),
        ),
        (
            "/v1/moderations",
            json,
            body(serde_json::json!({ "model": "judge", "input": "text" })),
            Reply::json(200, &verdicts),
        ),
        (
            "/v1/audio/speech",
            json,
            body(serde_json::json!({ "model": "voice", "input": "Hello", "voice": "alloy" })),
            spoken,
        ),
        (
            "/v1/audio/transcriptions",
            FORM,
            form(&wav(2), &[("model", "ear")]),
            Reply::json(200, &serde_json::json!({ "text": "hello" })),
        ),
    ]
}

/// A gateway with a model of each kind.
fn of_all_kinds(upstream: &Upstream) -> Builder {
    Gateway::builder()
        .upstream("scripted", upstream)
        .tables(&models_of_all_kinds("{ provider = \"scripted\" }"))
}

/// Models of each kind besides chats without images, with these upstreams.
pub(crate) fn models_of_all_kinds(upstreams: &str) -> String {
    let model = |id: &str, kind: &str, price: &str, more: &str| {
        format!(
            "[models.{id}]\nkind = \"{kind}\"\ncontext_window = 1000\nprice = {{ {price} }}\n{more}\
             upstreams = [{upstreams}]\n"
        )
    };
    let tokens = "max_output_tokens = 1000\ndefault_output_tokens = 1000\n";
    let tables = [
        model("painter", "chat", "image = 0.04", tokens),
        model("vectors", "embeddings", "input = 2, output = 0", ""),
        model(
            "order",
            "rerank",
            "input = 0, output = 0, search = 0.01",
            "",
        ),
        model("judge", "moderation", "input = 2, output = 0", ""),
        model("voice", "speech", "characters = 20", ""),
        model("ear", "transcription", "minute = 0.6", ""),
    ];
    tables.concat()
}

/// Lets the gateway learn of a disconnect from the socket: requests on the same runtime give it the time.
async fn notice(gateway: &Gateway) {
    for _ in 0..20 {
        gateway.stranger().get("/health").await;
    }
}

/// Returns the last charge, and whether it is an estimate.
async fn last_charge(gateway: &Gateway) -> (f64, Value) {
    let list = gateway.client().get("/usage/requests?limit=1").await.json();
    let last = &list["requests"][0];
    (
        last["credits"].as_f64().expect("a charge"),
        last["estimated"].clone(),
    )
}

/// Its provider goes on and bills, so weir does, too.
#[tokio::test]
async fn a_plain_request_of_any_kind_is_read_to_its_end_and_charged() {
    for (path, media_type, body, reply) in plain_requests() {
        let upstream = Upstream::start().await;
        let gateway = of_all_kinds(&upstream)
            .tables("[limits]\nhang_up_drain_ms = 0\nrequests_per_account = { free = 1 }\n")
            .start()
            .await;
        let client = gateway.client();
        let ask = || {
            let (client, body) = (client.clone(), body.clone());
            tokio::spawn(async move {
                client
                    .send(Method::POST, path, Some(media_type), body)
                    .await
            })
        };
        upstream.will(reply.clone());
        let answer = ask().await.expect("no panic");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        patiently(until_idle(&gateway)).await;
        let expected = last_charge(&gateway).await;
        assert!(expected.0 > 0.0, "{path}: {expected:?}");

        let gate = Gate::new();
        upstream.will(reply.after_gate(&gate));
        let request = ask();
        patiently(gate.reached()).await;
        request.abort();
        let _ = request.await;
        notice(&gateway).await;
        // The request keeps its place.
        let other = client.post("/chat", &chat("scripted", "x")).await;
        other.error(429, "TOO_MANY_AT_ONCE");
        assert_eq!(gateway.app().tasks.len(), 1, "{path}");
        gate.open();
        patiently(until_idle(&gateway)).await;
        assert_eq!(last_charge(&gateway).await, expected, "{path}");
        assert_eq!(upstream.count(), 2, "{path}");
    }
}

#[tokio::test]
async fn a_plain_request_without_a_client_ends_at_its_deadline() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::never());
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nhang_up_drain_ms = 0\n[timeouts]\ntotal_ms = 500\n")
        .start()
        .await;
    let client = gateway.client();
    let request = tokio::spawn(async move { client.post("/chat", &chat("scripted", "x")).await });
    upstream.next_request().await;
    request.abort();
    let _ = request.await;
    patiently(upstream.until_hung_up()).await;
    patiently(until_idle(&gateway)).await;
    // The provider was at work.
    assert!(last_charge(&gateway).await.0 > 0.0);
}

#[tokio::test]
async fn nothing_more_is_read_from_the_upstream_while_the_client_does_not_read() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    // More than all buffers in between hold together, in many pieces.
    let words = vec!["x".repeat(10_000); 2_000];
    upstream
        .will(Reply::chat_stream(words.iter().map(String::as_str)).gate_before_piece(1_999, &gate));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nclient_write_timeout_ms = 300\n")
        .start()
        .await;
    let mut body = chat("scripted", "x");
    body["max_tokens"] = 4_000_000.into();
    let asked = Instant::now();
    let mut stream = gateway.client().stream("/chat", &body).await;
    stream.next_chunk().await;
    // The client reads no more: the write time-out closes its connection, and only then does the drain read the rest
    // from the upstream.
    patiently(gate.reached()).await;
    assert!(asked.elapsed() >= Duration::from_millis(300));
    gate.open();
    patiently(until_idle(&gateway)).await;
    let mut chunks = 0;
    while stream.try_next().await {
        chunks += 1;
    }
    assert!(chunks < 1_990, "the stream was cut: {chunks}");
}

#[tokio::test]
async fn a_client_that_reads_a_little_now_and_then_is_cut_as_one_that_reads_nothing() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    // More than the sockets' buffers take.
    let words = vec!["x".repeat(10_000); 700];
    upstream
        .will(Reply::chat_stream(words.iter().map(String::as_str)).gate_before_piece(699, &gate));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        // On a busy machine, the drain takes longer than its usual time.
        .tables("[limits]\nclient_write_timeout_ms = 300\nhang_up_drain_ms = 100000\n")
        .start()
        .await;
    let mut body = chat("scripted", "x");
    body["stream"] = true.into();
    body["max_tokens"] = 4_000_000.into();
    let body = body.to_string();
    let socket = TcpSocket::new_v4().expect("a socket");
    // The minimum, so that the gateway notices each read.
    socket.set_recv_buffer_size(4 << 10).expect("it is open");
    let mut socket = socket.connect(gateway.address()).await.expect("it listens");
    let request = format!(
        "POST /chat HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n\
         {body}",
        gateway.address(),
        gateway.key(),
        body.len()
    );
    let sent = socket.write_all(request.as_bytes()).await;
    sent.expect("it reads");
    let mut begins = [0; 15];
    patiently(socket.read_exact(&mut begins))
        .await
        .expect("an answer");
    assert_eq!(&begins, b"HTTP/1.1 200 OK");
    let reading = tokio::spawn(async move {
        let mut buffer = [0; 512];
        while socket.read_exact(&mut buffer).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    // At that pace, a complete read would take minutes: only the drain gets so far.
    patiently(gate.reached()).await;
    gate.open();
    patiently(until_idle(&gateway)).await;
    reading.abort();
}

#[tokio::test]
async fn no_second_attempt_is_made_for_a_client_that_hung_up() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let gate = Gate::new();
    first.always(Reply::error(503, "overloaded").after_gate(&gate));
    second.always(Reply::chat("must not be asked"));
    let gateway = Gateway::builder()
        .provider("first", "openai", Some(&first))
        .provider("second", "openai", Some(&second))
        .model("both", &["first", "second"])
        .start()
        .await;
    let client = gateway.client();
    let request = tokio::spawn(async move { client.post("/chat", &chat("both", "x")).await });
    patiently(gate.reached()).await;
    request.abort();
    let _ = request.await;
    // The gateway learns of the disconnect from the socket; a request on the same runtime gives it the time.
    for _ in 0..20 {
        gateway.stranger().get("/health").await;
    }
    gate.open();
    patiently(until_idle(&gateway)).await;
    assert_eq!((first.count(), second.count()), (1, 0));
}

/// Waits until no request is under way.
async fn until_idle(gateway: &Gateway) {
    while !gateway.app().tasks.is_empty() {
        tokio::task::yield_now().await;
    }
}
