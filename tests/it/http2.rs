//! HTTP/2 in clear text, by prior knowledge: the same responses, and the same limits as HTTP/1.1.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::{ResponseFuture, SendRequest};
use http::{Method, Request, Version};
use http_body_util::BodyExt;
use tests::{Client, Gate, Gateway, Http2, Reply, Upstream, chat, patiently};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn limited(upstream: &Upstream, limits: &str) -> Gateway {
    Gateway::builder()
        .upstream("scripted", upstream)
        .tables(&format!("[limits]\n{limits}\n"))
        .start()
        .await
}

async fn connect(gateway: &Gateway) -> Http2 {
    Http2::connect(gateway.address())
        .await
        .with_key(gateway.key())
}

/// Waits until no request is under way, and no hold is open.
async fn until_settled(gateway: &Gateway) {
    patiently(async {
        loop {
            let metrics = gateway.stranger().get("/metrics").await.text();
            if metrics.contains("\nweir_ledger_open_holds 0\n") && gateway.app().tasks.is_empty() {
                return;
            }
        }
    })
    .await;
}

/// A client for invalid frames.
async fn raw(gateway: &Gateway) -> SendRequest<Bytes> {
    raw_with(gateway, &h2::client::Builder::new()).await
}

async fn raw_with(gateway: &Gateway, builder: &h2::client::Builder) -> SendRequest<Bytes> {
    let socket = TcpStream::connect(gateway.address()).await;
    let (send, connection) = builder
        .handshake(socket.expect("it listens"))
        .await
        .expect("it speaks HTTP/2");
    tokio::spawn(connection);
    send
}

fn post(gateway: &Gateway, path: &str) -> Request<()> {
    Request::post(format!("http://{}{path}", gateway.address()))
        .header("x-api-key", gateway.key())
        .header("content-type", "application/json")
        .body(())
        .expect("a legal request")
}

/// Sends a chat request with a streamed response.
async fn ask_for_stream(gateway: &Gateway, send: SendRequest<Bytes>) -> ResponseFuture {
    let mut body = chat("scripted", "x");
    body["stream"] = true.into();
    body["max_tokens"] = 4_000_000.into();
    let mut send = patiently(send.ready()).await.expect("it is open");
    let (answer, mut request) = send
        .send_request(post(gateway, "/chat"), false)
        .expect("it is sent");
    let body = Bytes::from(body.to_string());
    request.send_data(body, true).expect("it is sent");
    answer
}

#[tokio::test]
async fn both_versions_are_spoken_at_one_port() {
    let gateway = Gateway::start().await;
    let client = connect(&gateway).await;
    let health = client.request(Method::GET, "/health", Bytes::new());
    let health = client.ask(health).await.expect("an answer");
    assert_eq!(
        (health.status().as_u16(), health.version()),
        (200, Version::HTTP_2)
    );
    assert!(health.headers().contains_key("x-request-id"));
    let texts: Vec<_> = (0..50).map(|n| format!("hello {n}")).collect();
    let answers = texts
        .iter()
        .map(async |text| client.post("/chat", &chat("demo", text)).await);
    for (answer, text) in join_all(answers).await.iter().zip(&texts) {
        assert_eq!(answer.content(), format!("You said: {text}"));
    }
    client.get("/nope").await.error(404, "NOT_FOUND");
    assert_eq!(gateway.chat("demo", "x").await.content(), "You said: x");
    // A connection that begins like HTTP/2 may be something else.
    let mut socket = TcpStream::connect(gateway.address())
        .await
        .expect("it listens");
    for part in [
        "P",
        "UT /health HTTP/1.1\r\nConnection: close\r\nHost: 127.0.0.1\r\n\r\n",
    ] {
        socket.write_all(part.as_bytes()).await.expect("it reads");
    }
    let mut answer = String::new();
    patiently(socket.read_to_string(&mut answer))
        .await
        .expect("text");
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}

#[tokio::test]
async fn bodies_larger_than_any_window_pass_both_ways() {
    let upstream = Upstream::start().await;
    let long = "y".repeat(1 << 20);
    upstream.always(Reply::chat(&long));
    let gateway = limited(&upstream, "").await;
    let client = connect(&gateway).await;
    let mut body = chat("scripted", &"x".repeat(3 << 20));
    body["max_tokens"] = 4_000_000.into();
    let answers = [(); 3].map(|()| client.post("/chat", &body));
    for answer in join_all(answers).await {
        assert_eq!(answer.content(), long);
    }
    let too_large = chat("scripted", &"x".repeat(33 << 20));
    client
        .post("/chat", &too_large)
        .await
        .error(413, "PAYLOAD_TOO_LARGE");
    assert_eq!(client.get("/health").await.status, 200);
}

#[tokio::test]
async fn a_stream_comes_as_it_is_made() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat_stream(["one ", "two"]).gate_before_piece(1, &gate));
    let gateway = limited(&upstream, "").await;
    let client = connect(&gateway).await;
    let mut stream = client.stream("/chat", &chat("scripted", "count")).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    let chunk = stream.next_chunk().await;
    assert_eq!(chunk["choices"][0]["delta"]["content"], "one ");
    gate.open();
    assert_eq!(stream.content().await, "two");
    until_settled(&gateway).await;
}

#[tokio::test]
async fn giving_up_one_request_settles_it_and_leaves_the_others() {
    let upstream = Upstream::start().await;
    let (first, second) = (Gate::new(), Gate::new());
    upstream.will(Reply::chat_stream(["one ", "two"]).gate_before_piece(1, &first));
    upstream.will(Reply::chat_stream(["one ", "two"]).gate_before_piece(1, &second));
    let gateway = limited(&upstream, "hang_up_drain_ms = 200").await;
    let client = connect(&gateway).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = client.stream("/chat", &chat("scripted", "count")).await;
        stream.next_chunk().await;
        streams.push(stream);
    }
    let kept = streams.remove(1);
    drop(streams);
    patiently(upstream.until_hung_up()).await;
    second.open();
    assert_eq!(kept.content().await, "two");
    until_settled(&gateway).await;
    assert_eq!(client.get("/health").await.status, 200);
    let usage = gateway.client().get("/usage/requests").await.json();
    let charged = usage["requests"].as_array().expect("a list");
    assert_eq!(charged.len(), 2, "{usage}");
}

#[tokio::test]
async fn each_request_on_a_connection_takes_as_much_as_one_on_its_own() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.always(Reply::chat("late").after_gate(&gate));
    let request = chat("scripted", "x");
    for (limits, most, status, code) in [
        (
            "connections_per_address = 3",
            3,
            429,
            "TOO_MANY_CONNECTIONS",
        ),
        ("connections = 2", 2, 503, "OVERLOADED"),
        (
            "requests_per_account = { free = 2 }",
            2,
            429,
            "TOO_MANY_AT_ONCE",
        ),
    ] {
        let gate = Gate::new();
        let upstream = Upstream::start().await;
        upstream.always(Reply::chat("late").after_gate(&gate));
        let gateway = limited(&upstream, limits).await;
        let client = connect(&gateway).await;
        let held: Vec<_> = (0..most).map(|_| client.post("/chat", &request)).collect();
        let refused = async {
            for _ in 0..most {
                upstream.next_request().await;
            }
            let refused = client.post("/chat", &request).await;
            refused.error(status, code);
            assert!(refused.headers.contains_key("retry-after"), "{limits}");
            gate.open();
        };
        let (answers, ()) = tokio::join!(join_all(held), refused);
        for answer in answers {
            assert_eq!(answer.content(), "late");
        }
        assert_eq!(client.post("/chat", &request).await.content(), "late");
    }
}

/// Each request would begin and end at next to no cost to its client.
#[tokio::test]
async fn who_gives_up_request_after_request_loses_the_connection() {
    let upstream = Upstream::start().await;
    let gateway = limited(&upstream, "").await;
    let neighbour = connect(&gateway).await;
    let mut send = raw(&gateway).await;
    let mut given_up = 0;
    patiently(async {
        loop {
            match send.clone().ready().await {
                Ok(ready) => send = ready,
                Err(_) => return,
            }
            let Ok((_, mut request)) = send.send_request(post(&gateway, "/chat"), false) else {
                return;
            };
            // The request has begun, and waits for its body.
            tokio::task::yield_now().await;
            request.send_reset(h2::Reason::CANCEL);
            given_up += 1;
            assert!(given_up < 10_000, "it may go on for ever");
            assert_eq!(neighbour.get("/health").await.status, 200);
        }
    })
    .await;
    until_settled(&gateway).await;
}

#[tokio::test]
async fn heads_have_the_same_bounds() {
    let gateway = Gateway::start().await;
    let client = connect(&gateway).await;
    let with = async |name: &str, value: &str, times: usize| {
        let mut request = client.request(Method::GET, "/health", Bytes::new());
        for n in 0..times {
            let name = http::HeaderName::try_from(format!("{name}-{n}")).expect("a name");
            request
                .headers_mut()
                .append(name, value.parse().expect("a value"));
        }
        let answer = client
            .ask(request)
            .await
            .map(|answer| answer.status().as_u16());
        answer.ok()
    };
    assert_eq!(with("x", "1", 90).await, Some(200));
    assert_eq!(with("x", "1", 101).await, Some(431));
    assert_eq!(with("x", &"x".repeat(17 << 10), 1).await, Some(431));
    assert_eq!(with("x", "1", 1).await, Some(200), "the connection goes on");
    // Two hosts: weir would use one, and another server the other.
    let mut request = client.request(Method::GET, "/health", Bytes::new());
    request
        .headers_mut()
        .insert("host", "elsewhere.example".parse().expect("a value"));
    let refused = client.ask(request).await.expect("an answer");
    assert_eq!(refused.status(), 400);
    let tunnel = Request::connect("elsewhere.example:443")
        .body(())
        .expect("legal");
    let (answer, _) = raw(&gateway)
        .await
        .send_request(tunnel, true)
        .expect("sent");
    let refused = patiently(answer)
        .await
        .map(|answer| answer.status().as_u16());
    assert!(!matches!(refused, Ok(200)), "{refused:?}");
}

#[tokio::test]
async fn a_head_that_goes_on_for_ever_ends_the_connection() {
    let gateway = Gateway::start().await;
    let mut socket = TcpStream::connect(gateway.address())
        .await
        .expect("it listens");
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let mut opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    opening.extend(frame(4, 0, 0, &[]));
    // The first frame of the headers has neither END_HEADERS nor END_STREAM.
    opening.extend(frame(1, 0, 1, &[0x82, 0x86, 0x84]));
    socket.write_all(&opening).await.expect("it reads");
    let (mut read, mut write) = socket.into_split();
    let reading = tokio::spawn(async move {
        let mut answer = Vec::new();
        let _ = read.read_to_end(&mut answer).await;
    });
    let mut sent = 0;
    patiently(async {
        // An indexed field again and again, one to a frame.
        while write.write_all(&frame(9, 0, 1, &[0x82])).await.is_ok() && !reading.is_finished() {
            sent += 1;
            assert!(sent < 1_000_000, "it may go on for ever");
            tokio::task::yield_now().await;
        }
    })
    .await;
    patiently(reading).await.expect("no panic");
    assert_eq!(connect(&gateway).await.get("/health").await.status, 200);
}

#[tokio::test]
async fn an_answer_that_is_left_unread_is_cut_and_the_others_go_on() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let words = vec!["x".repeat(10_000); 2_000];
    let texts = words.iter().map(String::as_str);
    upstream.will(Reply::chat_stream(texts).gate_before_piece(1_999, &gate));
    let gateway = limited(&upstream, "client_write_timeout_ms = 300").await;
    let send = raw(&gateway).await;
    let asked = Instant::now();
    let answer = patiently(ask_for_stream(&gateway, send.clone()).await).await;
    let mut body = answer.expect("an answer").into_body();
    // Its window stays unchanged: the client returns no credit. All the same, other streams are read.
    let health = || {
        let uri = format!("http://{}/health", gateway.address());
        Request::get(uri).body(()).expect("a legal request")
    };
    let (mut received, mut ended) = (0, None);
    patiently(async {
        while ended.is_none() {
            match body.data().await {
                Some(Ok(data)) => received += data.len(),
                Some(Err(error)) => ended = error.reason(),
                None => panic!("it was whole"),
            }
            let mut send = send.clone().ready().await.expect("it is open");
            let (answer, _) = send.send_request(health(), true).expect("it is sent");
            assert_eq!(answer.await.expect("an answer").status(), 200);
        }
    })
    .await;
    assert_eq!(ended, Some(h2::Reason::CANCEL));
    assert!(asked.elapsed() >= Duration::from_millis(300));
    assert!(received < 1 << 20, "{received}");
    patiently(gate.reached()).await;
    gate.open();
    until_settled(&gateway).await;
}

#[tokio::test]
async fn an_answer_of_which_a_little_is_read_now_and_then_is_cut_as_well() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let words = vec!["x".repeat(10_000); 2_000];
    let texts = words.iter().map(String::as_str);
    upstream.will(Reply::chat_stream(texts).gate_before_piece(1_999, &gate));
    let gateway = limited(&upstream, "client_write_timeout_ms = 300").await;
    let mut client = h2::client::Builder::new();
    // Small enough that each read is acknowledged.
    let send = raw_with(&gateway, client.initial_window_size(1 << 10)).await;
    let answer = patiently(ask_for_stream(&gateway, send).await).await;
    let mut body = answer.expect("an answer").into_body();
    let ended = patiently(async {
        loop {
            match body.data().await {
                Some(Ok(data)) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    let given_back = body.flow_control().release_capacity(data.len());
                    given_back.expect("it was taken");
                }
                Some(Err(error)) => break error.reason(),
                None => panic!("it was whole"),
            }
        }
    })
    .await;
    assert_eq!(ended, Some(h2::Reason::CANCEL));
    patiently(gate.reached()).await;
    gate.open();
    until_settled(&gateway).await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let upstream = Upstream::start().await;
    let gateway = limited(&upstream, "body_timeout_ms = 200").await;
    let send = raw(&gateway).await;
    let mut send = patiently(send.ready()).await.expect("it is open");
    let (answer, mut request) = send
        .send_request(post(&gateway, "/chat"), false)
        .expect("sent");
    request
        .send_data(Bytes::from_static(b"{"), false)
        .expect("sent");
    let answer = patiently(answer).await.expect("an answer");
    assert_eq!(answer.status(), 408);
}

#[tokio::test]
async fn a_connection_ends_when_it_is_silent_idle_or_old() {
    let upstream = Upstream::start().await;
    let gateway = limited(&upstream, "head_timeout_ms = 300").await;
    let mut silent = connect(&gateway).await;
    let mut kept = connect(&gateway).await;
    assert_eq!(kept.get("/health").await.status, 200);
    silent.until_closed().await;
    assert_eq!(kept.get("/health").await.status, 200);
    let gateway = limited(&upstream, "idle_timeout_ms = 200").await;
    kept = connect(&gateway).await;
    assert_eq!(kept.get("/health").await.status, 200);
    kept.until_closed().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("late").after_gate(&gate));
    let gateway = limited(&upstream, "connection_age_ms = 300").await;
    let mut old = connect(&gateway).await;
    let request = old.request(
        Method::POST,
        "/chat",
        chat("scripted", "x").to_string().into(),
    );
    let asked = old.ask(request);
    let aged = async {
        gate.reached().await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        gate.open();
    };
    let (answer, ()) = tokio::join!(asked, aged);
    let body = answer.expect("it is answered first").into_body();
    assert!(!body.collect().await.expect("whole").to_bytes().is_empty());
    old.until_closed().await;
}

/// One connection that ignores GOAWAY, and one that is silent.
#[tokio::test]
async fn an_idle_connection_makes_way() {
    let upstream = Upstream::start().await;
    let gateway = limited(&upstream, "connections = 2").await;
    let mut idle = [connect(&gateway).await, connect(&gateway).await];
    let deaf = std::mem::replace(&mut idle[0], connect(&gateway).await);
    drop(deaf);
    for client in &idle {
        assert_eq!(client.get("/health").await.status, 200);
    }
    let neighbour = Client::new(gateway.address()).with_key(gateway.key());
    let answer = neighbour.post("/chat", &chat("demo", "hello")).await;
    assert_eq!(answer.content(), "You said: hello");
}

#[tokio::test]
async fn stopping_finishes_what_is_under_way_and_takes_nothing_more() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat_stream(["one ", "two"]).gate_before_piece(1, &gate));
    let gateway = limited(&upstream, "").await;
    let address = gateway.address();
    let mut client = connect(&gateway).await;
    let mut stream = client.stream("/chat", &chat("scripted", "count")).await;
    stream.next_chunk().await;
    let draining = gateway.app().draining.clone();
    let stopped = tokio::spawn(gateway.stop());
    draining.cancelled().await;
    patiently(async { while TcpStream::connect(address).await.is_ok() {} }).await;
    assert!(!stopped.is_finished(), "it waits");
    // The client learns to send no further request on this connection.
    patiently(async { while client.try_post("/chat", &chat("demo", "x")).await.is_ok() {} }).await;
    gate.open();
    assert_eq!(stream.content().await, "two");
    client.until_closed().await;
    stopped.await.expect("it stops");
}

#[tokio::test]
async fn while_it_is_not_ready_any_more_a_connection_takes_one_last_request() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\ndrain_delay_ms = 3600000\n")
        .start()
        .await;
    let mut client = connect(&gateway).await;
    assert_eq!(client.get("/health").await.status, 200);
    let app = gateway.app().clone();
    let address = gateway.address();
    let stopped = tokio::spawn(gateway.stop());
    app.draining.cancelled().await;
    client.get("/health/ready").await.error(503, "NOT_READY");
    client.until_closed().await;
    let another = Http2::connect(address).await;
    assert_eq!(another.get("/health").await.status, 200);
    drop(another);
    app.shutdown.cancel();
    stopped.await.expect("it stops");
}

/// One window for the connection: a client that returns no credit for one response gets as little of all of them.
#[tokio::test]
async fn nothing_more_is_read_from_the_upstream_than_the_client_has_room_for() {
    let upstream = Upstream::start().await;
    let words = vec!["x".repeat(10_000); 500];
    upstream.will(Reply::chat_stream(words.iter().map(String::as_str)));
    let gateway = limited(&upstream, "").await;
    let mut small = h2::client::Builder::new();
    small.initial_window_size(1_000);
    let send = raw_with(&gateway, &small).await;
    let answer = patiently(ask_for_stream(&gateway, send).await).await;
    let mut body = answer.expect("an answer").into_body();
    let mut received = 0;
    let all = poll_fn(|context| {
        loop {
            match std::task::ready!(body.poll_data(context)) {
                Some(Ok(data)) => {
                    received += data.len();
                    let flow = body.flow_control();
                    flow.release_capacity(data.len()).expect("it was received");
                }
                Some(Err(error)) => panic!("{error}"),
                None => return std::task::Poll::Ready(()),
            }
        }
    });
    patiently(all).await;
    assert!(received > 5_000_000, "{received}");
    until_settled(&gateway).await;
}
