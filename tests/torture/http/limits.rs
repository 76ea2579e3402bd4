//! H2: headers and bodies beyond every limit, many times, in both versions: each gets its error, and memory stays
//! constant.

use std::net::SocketAddr;
use std::time::Duration;

use tests::{Http2, patiently};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{PREFACE, client, hello, key};
use crate::process::{Node, Stores};

const ROUNDS: u32 = if cfg!(debug_assertions) { 20 } else { 500 };

/// Limit of the memory growth.
const MEMORY_LIMIT_KIB: usize = 48 << 10;

/// Maximum frames and requests of an attack that must be cut.
const FLOOD: usize = 1_000_000;

pub(crate) fn run() -> bool {
    crate::runtime(2).block_on(async {
        let mut node = Node::new(
            &Stores::default(),
            "[rate_limits]\nfree = 1000000\naddress = 1000000\n[limits]\nbody_bytes = 1048576\n",
        );
        node.start();
        let key = key(&node);
        let client = client(&node, &key);
        let address = node.address();
        let cases = cases(address, &key);
        let mut wrong = Vec::new();
        let mut before = 0;
        let rounds = crate::rounds(ROUNDS);
        for round in 0..=rounds {
            for (what, request, status) in &cases {
                let answer = say(address, request).await;
                if !answer.starts_with(&format!("HTTP/1.1 {status} ")) {
                    let heard: String = answer.chars().take(40).collect();
                    wrong.push(format!("{what}: {heard:?}"));
                }
            }
            for (what, is_right) in [
                ("HTTP/2, 101 headers", large_head(address, 101, 1).await == Some(431)),
                ("HTTP/2, a header of 17 KiB", large_head(address, 1, 17 << 10).await == Some(431)),
                ("HTTP/2, CONTINUATION for ever", continuation(address).await),
                ("HTTP/2, resets for ever", resets(address, &key).await),
            ] {
                if !is_right {
                    wrong.push(what.to_owned());
                }
            }
            // The first round has allocated the permanent memory.
            if round == 0 {
                before = node.resident_kib();
            }
        }
        let grown = node.resident_kib().saturating_sub(before);
        let served = client.post("/chat", &hello()).await.status == 200;
        wrong.sort();
        wrong.dedup();
        println!(
            "H2: {rounds} rounds of {} heads and bodies beyond limits: {} answered wrongly {wrong:?}; {} KiB more resident \
             (limit {MEMORY_LIMIT_KIB}); {} panics; served after: {served}",
            cases.len() + 4,
            wrong.len(),
            grown,
            node.panics()
        );
        wrong.is_empty() && grown <= MEMORY_LIMIT_KIB && served && node.panics() == 0
    })
}

/// Returns cases: a name, a request, the required status.
fn cases(address: SocketAddr, key: &str) -> Vec<(&'static str, Vec<u8>, u16)> {
    let post = |headers: &str, body: &[u8]| {
        let head = format!(
            "POST /chat HTTP/1.1\r\nHost: {address}\r\nX-Api-Key: {key}\r\nContent-Type: application/json\r\n{headers}\r\n"
        );
        [head.as_bytes(), body].concat()
    };
    let chunks = "10000\r\n".to_owned() + &"x".repeat(0x10000) + "\r\n";
    vec![
        ("101 headers", post(&"x: 1\r\n".repeat(101), b""), 431),
        (
            "a line of 17 KiB",
            format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(17 << 10)).into(),
            431,
        ),
        (
            "chunks without an end",
            post(
                "Transfer-Encoding: chunked\r\n",
                chunks.repeat(32).as_bytes(),
            ),
            413,
        ),
        (
            "a gzip bomb",
            post(
                "Content-Encoding: gzip\r\nContent-Length: 4\r\n",
                b"\x1f\x8b\x08\0",
            ),
            415,
        ),
        (
            "TE and CL",
            post(
                "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
                b"0\r\n\r\n",
            ),
            400,
        ),
        (
            "two CLs",
            post("Content-Length: 3\r\nContent-Length: 4\r\n", b"abcd"),
            400,
        ),
    ]
}

/// Writes as much as the gateway accepts, and reads to the end. A client that half-closes before the response counts
/// as disconnected.
async fn say(address: SocketAddr, request: &[u8]) -> String {
    let socket = TcpStream::connect(address).await.expect("it listens");
    let (mut read, mut write) = socket.into_split();
    let mut answer = Vec::new();
    let writing = write.write_all(request);
    let reading = patiently(read.read_buf(&mut answer));
    let _ = tokio::join!(writing, reading);
    let _ = write.shutdown().await;
    let _ = patiently(read.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the response to a request with this many headers of this size.
async fn large_head(address: SocketAddr, headers: usize, bytes: usize) -> Option<u16> {
    let client = Http2::connect(address).await;
    let mut request = client.request(http::Method::GET, "/health", bytes::Bytes::new());
    for n in 0..headers {
        let name = http::HeaderName::try_from(format!("x-{n}")).expect("a name");
        let value = "x".repeat(bytes).parse().expect("a value");
        request.headers_mut().append(name, value);
    }
    let answer = client.ask(request).await.ok()?;
    Some(answer.status().as_u16())
}

/// Returns whether endless headers are cut.
async fn continuation(address: SocketAddr) -> bool {
    let mut socket = TcpStream::connect(address).await.expect("it listens");
    let head = [PREFACE, b"\0\0\x03\x01\0\0\0\0\x01\x82\x86\x84"].concat();
    if socket.write_all(&head).await.is_err() {
        return true;
    }
    for _ in 0..FLOOD {
        let frame = b"\0\0\x01\x09\0\0\0\0\x01\x82";
        if socket.write_all(frame).await.is_err() {
            return true;
        }
    }
    false
}

/// Returns whether a client that resets request after request is cut.
async fn resets(address: SocketAddr, key: &str) -> bool {
    let socket = TcpStream::connect(address).await.expect("it listens");
    let Ok((mut send, connection)) = h2::client::handshake(socket).await else {
        return false;
    };
    tokio::spawn(connection);
    for _ in 0..FLOOD {
        let request = http::Request::post(format!("http://{address}/chat"))
            .header("x-api-key", key)
            .header("content-type", "application/json")
            .body(())
            .expect("a legal request");
        let ready = tokio::time::timeout(Duration::from_secs(10), send.ready()).await;
        match ready {
            Ok(Ok(ready)) => send = ready,
            Ok(Err(_)) => return true,
            Err(_) => return false,
        }
        let sent: Result<(_, h2::SendStream<bytes::Bytes>), _> = send.send_request(request, false);
        let Ok((_, mut body)) = sent else {
            return true;
        };
        tokio::task::yield_now().await;
        body.send_reset(h2::Reason::CANCEL);
    }
    false
}
