//! Clients that disconnect, and clients that do not read.

use std::time::{Duration, Instant};

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

#[tokio::test]
async fn a_plain_client_that_hangs_up_is_noticed_too() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::never());
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nhang_up_drain_ms = 200\n")
        .start()
        .await;
    let client = gateway.client();
    let request = tokio::spawn(async move { client.post("/chat", &chat("scripted", "x")).await });
    upstream.next_request().await;
    request.abort();
    let _ = request.await;
    patiently(upstream.until_hung_up()).await;
    patiently(until_idle(&gateway)).await;
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
