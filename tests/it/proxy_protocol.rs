//! The PROXY protocol: the client of a connection through a proxy that passes on bytes.

use std::net::SocketAddr;

use tests::{Gateway, Http2, chat, patiently};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const PROXY: [u8; 4] = [127, 0, 0, 1];
const OTHER: [u8; 4] = [127, 0, 0, 2];

async fn behind_proxies(tables: &str) -> Gateway {
    let gateway = Gateway::builder()
        .settings("dev = false\nproxy_protocol = [\"127.0.0.1/32\"]")
        .tables(tables);
    gateway.start().await
}

async fn connect(gateway: &Gateway, from: [u8; 4], header: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind(SocketAddr::from((from, 0)))
        .expect("its own address");
    let mut socket = socket.connect(gateway.address()).await.expect("it listens");
    socket.write_all(header).await.expect("it reads");
    socket
}

/// Returns the response to a request after this header, to the end of the connection.
async fn ask(gateway: &Gateway, from: [u8; 4], header: &[u8], key: &str) -> String {
    let request =
        format!("GET /models HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\nConnection: close\r\n\r\n");
    let mut socket = connect(gateway, from, header).await;
    let _ = socket.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    // A connection that is refused unread may be reset.
    let _ = patiently(socket.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

fn v1(client: &str) -> Vec<u8> {
    format!("PROXY TCP4 {client} 127.0.0.1 4711 443\r\n").into()
}

fn v2(command: u8, client: [u8; 4]) -> Vec<u8> {
    let head = [b"\r\n\r\n\0\r\nQUIT\n", &[command, 0x11, 0, 12][..]].concat();
    [&head[..], &client, &[127, 0, 0, 1, 18, 103, 1, 187]].concat()
}

#[tokio::test]
async fn either_version_is_read_and_clients_are_told_apart() {
    let gateway = behind_proxies("").await;
    for header in [
        v1("203.0.113.9"),
        v2(0x21, [203, 0, 113, 9]),
        v2(0x20, [0; 4]),
    ] {
        let answer = ask(&gateway, PROXY, &header, gateway.key()).await;
        assert_eq!(status(&answer), "200", "{answer}");
    }
    // Both versions name one client.
    for n in 0..10 {
        let header = match n % 2 {
            0 => v1("203.0.113.7"),
            _ => v2(0x21, [203, 0, 113, 7]),
        };
        let answer = ask(&gateway, PROXY, &header, "inf_wrong").await;
        assert_eq!(status(&answer), "401", "{answer}");
    }
    let shut_out = ask(&gateway, PROXY, &v1("203.0.113.7"), "inf_wrong").await;
    assert!(shut_out.contains("LOCKED_OUT"), "{shut_out}");
    for header in [v1("203.0.113.8"), v2(0x20, [203, 0, 113, 7])] {
        let answer = ask(&gateway, PROXY, &header, "inf_wrong").await;
        assert_eq!(status(&answer), "401", "{answer}");
    }
    let header = v1("203.0.113.7");
    let listed = ask(&gateway, OTHER, b"", gateway.key()).await;
    assert_eq!(status(&listed), "200", "{listed}");
    let mut http2 = connect(&gateway, PROXY, &header).await;
    http2.flush().await.expect("it reads");
    let client = Http2::over(http2, "a").await.with_key(gateway.key());
    let answer = client.post("/chat", &chat("demo", "hello")).await;
    // A key that the gateway knows by now continues to work from an address in lockout.
    assert_eq!(answer.content(), "You said: hello");
}

#[tokio::test]
async fn rates_are_by_the_address_that_is_named() {
    let gateway = behind_proxies("[rate_limits]\naddress = 2\n").await;
    let asked = async |client: &str| {
        let answer = ask(&gateway, PROXY, &v1(client), "inf_wrong").await;
        status(&answer).to_owned()
    };
    let first = [
        asked("203.0.113.7").await,
        asked("203.0.113.7").await,
        asked("203.0.113.7").await,
    ];
    assert!(first.contains(&"429".to_owned()), "{first:?}");
    assert_eq!(asked("203.0.113.8").await, "401");
}

#[tokio::test]
async fn a_proxy_must_say_it_and_nobody_else_may() {
    let gateway = behind_proxies("").await;
    for header in [
        &b""[..],
        b"PROXY TCP4 203.0.113.7\r\n",
        b"PROXY TCP4 203.0.113.007 127.0.0.1 1 2\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c0123456789ab",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
    ] {
        let answer = ask(&gateway, PROXY, header, gateway.key()).await;
        assert_eq!(answer, "", "{header:?}");
    }
    for header in [v1("203.0.113.7"), v2(0x21, [203, 0, 113, 7])] {
        let answer = ask(&gateway, OTHER, &header, gateway.key()).await;
        assert_eq!(status(&answer), "400", "{answer}");
    }
    assert_eq!(
        status(&ask(&gateway, OTHER, b"", gateway.key()).await),
        "200"
    );
}

#[tokio::test]
async fn a_header_is_not_waited_for_longer_than_a_head() {
    let gateway = behind_proxies("[limits]\nhead_timeout_ms = 300\n").await;
    for part in [&b""[..], b"PROXY TCP4 203."] {
        let mut socket = connect(&gateway, PROXY, part).await;
        let mut answer = Vec::new();
        let _ = patiently(socket.read_to_end(&mut answer)).await;
        assert_eq!(answer, b"");
    }
}

#[tokio::test]
async fn connections_count_for_the_address_that_is_named() {
    let gateway = behind_proxies("[limits]\nconnections_per_address = 1\n").await;
    let held = async |client: &str| {
        let mut socket = connect(&gateway, PROXY, &v1(client)).await;
        socket
            .write_all(b"POST /chat HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            .await
            .expect("it reads");
        socket
    };
    let mut many = Vec::new();
    for n in 1..=5 {
        many.push(held(&format!("203.0.113.{n}")).await);
    }
    for socket in &mut many {
        let mut answer = [0; 12];
        patiently(socket.read_exact(&mut answer))
            .await
            .expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 401");
    }
    // A client's idle connection makes way for its next one.
    let mut idle = connect(&gateway, PROXY, &v1("203.0.113.9")).await;
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .expect("it reads");
    let mut answer = [0; 12];
    patiently(idle.read_exact(&mut answer))
        .await
        .expect("an answer");
    let answered = ask(&gateway, PROXY, &v1("203.0.113.9"), gateway.key()).await;
    assert_eq!(status(&answered), "200", "{answered}");
    let mut rest = Vec::new();
    let _ = patiently(idle.read_to_end(&mut rest)).await;
}

/// Without an internal listener, metrics are for this machine and for clients with the token.
#[tokio::test]
async fn metrics_are_closed_to_other_machines_without_the_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    let write = |token: &str| std::fs::write(&file, token).expect("it can be written");
    let (first, second) = ("a".repeat(32), "b".repeat(40));
    write(&format!("{first}\n"));
    let settings =
        format!("dev = false\nproxy_protocol = [\"127.0.0.1/32\"]\nmetrics_token_file = {file:?}");
    let gateway = Gateway::builder().settings(&settings).start().await;
    let scrape = async |from: [u8; 4], header: &[u8], more: String| {
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{more}\r\n");
        let mut socket = connect(&gateway, from, header).await;
        let _ = socket.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = patiently(socket.read_to_end(&mut answer)).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    let remote = v1("203.0.113.9");
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let here = scrape(OTHER, b"", String::new()).await;
    assert_eq!(status(&here), "200", "{here}");
    assert!(here.contains("weir_upstream_breaker_open"), "{here}");
    for (from, header, more) in [
        (PROXY, &*remote, String::new()),
        (PROXY, &*remote, bearer(&second)),
        (PROXY, &*remote, bearer("")),
        (OTHER, b"", "X-Forwarded-For: 127.0.0.1\r\n".to_owned()),
        (OTHER, b"", "X-Forwarded-Proto: https\r\n".to_owned()),
        (OTHER, b"", "Forwarded: for=127.0.0.1\r\n".to_owned()),
        (OTHER, b"", "Via: 1.1 proxy\r\n".to_owned()),
    ] {
        let refused = scrape(from, header, more.clone()).await;
        assert_eq!(status(&refused), "401", "{more}: {refused}");
        assert!(refused.contains("UNAUTHENTICATED"), "{refused}");
        assert!(!refused.contains("weir_upstream_breaker_open"), "{refused}");
    }
    let held = scrape(PROXY, &remote, bearer(&first)).await;
    assert_eq!(status(&held), "200", "{held}");
    // A new token works at once, and the old one no longer.
    write(&second);
    let rotated = scrape(PROXY, &remote, bearer(&second)).await;
    assert_eq!(status(&rotated), "200", "{rotated}");
    let old = scrape(PROXY, &remote, bearer(&first)).await;
    assert_eq!(status(&old), "401", "{old}");
}
