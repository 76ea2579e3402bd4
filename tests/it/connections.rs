//! Connections: their limits, their time limits, and responses to malformed requests.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Gate, Gateway, Reply, Upstream, chat, patiently};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

async fn limited(limits: &str) -> Gateway {
    let gateway = Gateway::builder().tables(&format!("[limits]\n{limits}\n"));
    gateway.start().await
}

async fn connect(gateway: &Gateway) -> TcpStream {
    TcpStream::connect(gateway.address())
        .await
        .expect("it listens")
}

/// Writes, and reads to the end, which must not be a reset.
async fn say(gateway: &Gateway, text: &str) -> String {
    let mut socket = connect(gateway).await;
    socket.write_all(text.as_bytes()).await.expect("it reads");
    rest(&mut socket).await
}

async fn rest(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    patiently(socket.read_to_end(&mut answer))
        .await
        .expect("no reset");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads a response's headers and as much of a body as they announce.
async fn one_answer(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    patiently(async {
        loop {
            let text = String::from_utf8_lossy(&answer);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                if length.is_some_and(|length| length.parse() == Ok(body.len())) {
                    return text.into_owned();
                }
            }
            let read = socket.read_buf(&mut answer).await.expect("no reset");
            assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
        }
    })
    .await
}

/// Checks that a response is this documented error, from any layer.
fn is_error(answer: &str, status: u16, code: &str) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let body: Value =
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert_eq!(body["error"]["code"], code, "{answer}");
    let id = body["error"]["request_id"].as_str().expect("an id");
    assert!(head.contains(&format!("x-request-id: {id}")), "{answer}");
    assert!(head.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn what_is_no_request_gets_the_error_body() {
    let gateway = Gateway::start().await;
    let post = |headers: &str| format!("POST /chat HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n");
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(17 << 10));
    let many = post(&"x: 1\r\n".repeat(101));
    for (text, status, code) in [
        ("nonsense\r\n\r\n", 400, "INVALID_REQUEST"),
        ("GET / HTTP/3.0\r\n\r\n", 400, "INVALID_REQUEST"),
        ("GET nowhere HTTP/1.1\r\n\r\n", 400, "INVALID_REQUEST"),
        (&*post("Content-Length: five"), 400, "INVALID_REQUEST"),
        (
            &*post("Content-Length: 5\r\nTransfer-Encoding: chunked"),
            400,
            "INVALID_REQUEST",
        ),
        (
            &*post("Transfer-Encoding: chunked\r\nContent-Length: 5"),
            400,
            "INVALID_REQUEST",
        ),
        (&long, 431, "HEAD_TOO_LARGE"),
        (&many, 431, "HEAD_TOO_LARGE"),
    ] {
        is_error(&say(&gateway, text).await, status, code);
    }
}

/// Earlier requests are answered first, and are not lost.
#[tokio::test]
async fn a_bad_head_behind_good_requests_is_refused_after_them() {
    let gateway = Gateway::start().await;
    let health = format!(
        "GET /health HTTP/1.1\r\nHost: {}\r\n\r\n",
        gateway.address()
    );
    let chunked = format!(
        "POST /nope HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nGET \r\n0\r\n\r\n",
        gateway.address()
    );
    let answers = say(
        &gateway,
        &format!("{health}{chunked}{health}nonsense\r\n\r\n"),
    )
    .await;
    let statuses: Vec<_> = answers
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| &answer[..3])
        .collect();
    assert_eq!(statuses, ["200", "404", "200", "400"], "{answers}");
}

#[tokio::test]
async fn who_is_refused_unread_hears_why() {
    let gateway = Gateway::start().await;
    let body = vec![b' '; 33 << 20];
    let post = async |path: &str, length: usize| {
        // The client sends everything before it reads.
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n",
            gateway.address(),
            if path == "/chat" { gateway.key() } else { "" },
        );
        let mut socket = connect(&gateway).await;
        socket.write_all(head.as_bytes()).await.expect("it reads");
        patiently(socket.write_all(&body[..length]))
            .await
            .expect("it reads");
        rest(&mut socket).await
    };
    let too_large = post("/chat", 33 << 20).await;
    is_error(&too_large, 413, "PAYLOAD_TOO_LARGE");
    is_error(&post("/nope", 5 << 20).await, 404, "NOT_FOUND");
    // A complete body costs no client its connection.
    let mut socket = connect(&gateway).await;
    for _ in 0..3 {
        let request = format!(
            "POST /chat HTTP/1.1\r\nHost: {}\r\nContent-Length: 5\r\n\r\nhello",
            gateway.address()
        );
        socket
            .write_all(request.as_bytes())
            .await
            .expect("it is open");
        let answer = one_answer(&mut socket).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
    // A client that waits for a 100 gets the final response instead.
    let request = format!(
        "POST /chat HTTP/1.1\r\nHost: {}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        gateway.address()
    );
    let mut socket = connect(&gateway).await;
    socket
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    let answer = one_answer(&mut socket).await;
    is_error(&answer, 401, "UNAUTHENTICATED");
}

#[tokio::test]
async fn a_head_is_waited_for_less_long_than_another_request() {
    let gateway = limited("head_timeout_ms = 300").await;
    let health = format!(
        "GET /health HTTP/1.1\r\nHost: {}\r\n\r\n",
        gateway.address()
    );
    let mut kept = connect(&gateway).await;
    kept.write_all(health.as_bytes()).await.expect("it reads");
    assert!(one_answer(&mut kept).await.starts_with("HTTP/1.1 200 "));
    // One client is silent; one sends byte by byte.
    let mut silent = connect(&gateway).await;
    let mut dripping = connect(&gateway).await;
    let started = Instant::now();
    let dripped = async {
        for byte in health.bytes() {
            if dripping.write_all(&[byte]).await.is_err()
                || started.elapsed() > Duration::from_secs(9)
            {
                break;
            }
            let mut answer = [0; 2_000];
            let pause = Duration::from_millis(50);
            if let Ok(read) = tokio::time::timeout(pause, dripping.read(&mut answer)).await {
                let read = read.expect("no reset");
                return String::from_utf8_lossy(&answer[..read]).into_owned();
            }
        }
        panic!("it is not waited for");
    };
    let (silence, dripped) = tokio::join!(rest(&mut silent), dripped);
    assert_eq!(silence, "");
    is_error(&dripped, 408, "REQUEST_TIMEOUT");
    assert!(started.elapsed() >= Duration::from_millis(250));
    // Longer than for headers, and no longer than for headers once they begin.
    kept.write_all(health.as_bytes()).await.expect("it is open");
    assert!(one_answer(&mut kept).await.starts_with("HTTP/1.1 200 "));
    kept.write_all(b"GET ").await.expect("it is open");
    is_error(&rest(&mut kept).await, 408, "REQUEST_TIMEOUT");
}

#[tokio::test]
async fn a_connection_ends_when_it_is_idle_or_old() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("late").after_gate(&gate));
    let gateway = limited("idle_timeout_ms = 100").await;
    let health = format!(
        "GET /health HTTP/1.1\r\nHost: {}\r\n\r\n",
        gateway.address()
    );
    assert!(say(&gateway, &health).await.starts_with("HTTP/1.1 200 "));

    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nconnection_age_ms = 300\n")
        .start()
        .await;
    let started = Instant::now();
    let health = format!(
        "GET /health HTTP/1.1\r\nHost: {}\r\n\r\n",
        gateway.address()
    );
    assert!(say(&gateway, &health).await.starts_with("HTTP/1.1 200 "));
    let mut socket = connect(&gateway).await;
    let body = chat("scripted", "x").to_string();
    let request = format!(
        "POST /chat HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        gateway.address(),
        gateway.key(),
        body.len()
    );
    socket
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    gate.reached().await;
    while started.elapsed() < Duration::from_millis(900) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    gate.open();
    // The client is refused only after its request.
    let answer = rest(&mut socket).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn an_address_has_its_share_of_connections() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.always(Reply::chat("late").after_gate(&gate));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nconnections_per_address = 3\n")
        .start()
        .await;
    // Silent connections make way.
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(connect(&gateway).await);
    }
    let health = async |from: [u8; 4]| {
        let client = gateway.stranger().from_address(from.into());
        client.get("/health").await
    };
    assert_eq!(health([127, 0, 0, 1]).await.status, 200);
    assert_eq!(rest(&mut silent[0]).await, "");
    // Connections with a request under way do not.
    let held = [(); 3].map(|()| {
        let client = gateway.client().at(gateway.address());
        tokio::spawn(async move { client.post("/chat", &chat("scripted", "x")).await })
    });
    for _ in &held {
        upstream.next_request().await;
    }
    for socket in &mut silent[1..] {
        assert_eq!(rest(socket).await, "");
    }
    let request = format!(
        "GET /health HTTP/1.1\r\nHost: {}\r\n\r\n",
        gateway.address()
    );
    let refused = say(&gateway, &request).await;
    is_error(&refused, 429, "TOO_MANY_CONNECTIONS");
    assert!(refused.contains("retry-after: "), "{refused}");
    assert_eq!(health([127, 0, 0, 2]).await.status, 200);
    gate.open();
    for answer in held {
        assert_eq!(answer.await.expect("no panic").content(), "late");
    }
    assert_eq!(health([127, 0, 0, 1]).await.status, 200);
}

#[tokio::test]
async fn a_trusted_proxy_has_more_than_an_address() {
    let gateway = Gateway::builder()
        .settings("dev = false\ntrusted_proxies = [\"127.0.0.1/32\"]")
        .tables("[limits]\nconnections_per_address = 1\n")
        .start()
        .await;
    let from = async |address: [u8; 4]| {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind(SocketAddr::from((address, 0)))
            .expect("its own address");
        let mut socket = socket.connect(gateway.address()).await.expect("it listens");
        socket
            .write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .expect("it reads");
        assert!(one_answer(&mut socket).await.starts_with("HTTP/1.1 200 "));
        socket
    };
    let (mut first, second) = (from([127, 0, 0, 1]).await, from([127, 0, 0, 1]).await);
    let (mut other, _third) = (from([127, 0, 0, 2]).await, from([127, 0, 0, 2]).await);
    assert_eq!(rest(&mut other).await, "");
    first
        .write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .expect("it is open");
    assert!(one_answer(&mut first).await.starts_with("HTTP/1.1 200 "));
    drop(second);
}

#[tokio::test]
async fn when_all_connections_are_taken_an_idle_one_makes_way() {
    let gateway = limited("connections = 2\nconnections_per_address = 2").await;
    let mut silent = [connect(&gateway).await, connect(&gateway).await];
    let neighbour = gateway.client().from_address([127, 0, 0, 2].into());
    assert_eq!(neighbour.get("/health").await.status, 200);
    let chat = neighbour.post("/chat", &chat("demo", "hello")).await;
    assert_eq!(chat.content(), "You said: hello");
    assert_eq!(rest(&mut silent[0]).await, "");
}

/// Fills the gateway with a request on each connection, whose responses a gate holds back.
async fn full(upstream: &Upstream, connections: usize) -> Gateway {
    let gateway = Gateway::builder()
        .upstream("scripted", upstream)
        .tables(&format!("[limits]\nconnections = {connections}\n"))
        .start()
        .await;
    for _ in 0..connections {
        let client = gateway.client().at(gateway.address());
        tokio::spawn(async move { client.try_post("/chat", &chat("scripted", "x")).await });
    }
    for _ in 0..connections {
        upstream.next_request().await;
    }
    gateway
}

#[tokio::test]
async fn health_and_payment_events_are_heard_when_all_places_are_taken() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.always(Reply::chat("late").after_gate(&gate));
    let gateway = full(&upstream, 3).await;
    for _ in 0..3 {
        let stranger = gateway.stranger().at(gateway.address());
        assert_eq!(stranger.get("/health").await.status, 200);
        assert_eq!(stranger.get("/health/ready").await.status, 200);
        // Accepted, and refused by its content.
        let event = stranger
            .post("/billing/webhook", &serde_json::json!({}))
            .await;
        event.error(400, "INVALID_SIGNATURE");
        let refused = gateway.client().at(gateway.address());
        let refused = refused.post("/chat", &chat("demo", "x")).await;
        refused.error(503, "OVERLOADED");
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(refused.headers["connection"], "close");
        let vendors = gateway.client().at(gateway.address());
        let vendors = vendors.post("/v1/messages", &chat("demo", "x")).await;
        assert_eq!(vendors.status, 529, "{}", vendors.text());
    }
    // A connection in one of the reserved places moves to a regular one once there is room.
    let kept = gateway.client().at(gateway.address());
    assert_eq!(kept.get("/health").await.status, 200);
    gate.open();
    patiently(async { while kept.post("/chat", &chat("demo", "hello")).await.status != 200 {} })
        .await;
}

/// A client that sends events slowly without authentication leaves some of the reserved places to the probes.
#[tokio::test]
async fn events_that_drip_do_not_take_the_last_places() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.always(Reply::chat("late").after_gate(&gate));
    let gateway = full(&upstream, 1).await;
    let (now, header) = (
        gateway.app().ledger.now().seconds(),
        &gateway.app().payments.signature_header,
    );
    let event = format!(
        "POST /billing/webhook HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\
         {header}: t={now},v1={}\r\n\r\n{{",
        gateway.address(),
        "0".repeat(64)
    );
    let mut dripping = Vec::new();
    let mut refused = 0;
    while refused == 0 {
        assert!(dripping.len() < 64, "none is refused");
        let mut socket = connect(&gateway).await;
        socket.write_all(event.as_bytes()).await.expect("it reads");
        let health = gateway
            .stranger()
            .at(gateway.address())
            .get("/health")
            .await;
        assert_eq!(health.status, 200);
        let mut first = [0; 12];
        match tokio::time::timeout(Duration::from_millis(50), socket.read_exact(&mut first)).await {
            Ok(read) => {
                read.expect("no reset");
                assert_eq!(&first, b"HTTP/1.1 503");
                refused += 1;
            }
            Err(_) => dripping.push(socket),
        }
    }
    assert!(dripping.len() >= 16, "{}", dripping.len());
    gate.open();
}
