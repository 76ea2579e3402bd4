//! H3: clients that read their streams at a KiB per second, over both versions: their memory, their cut-off, their
//! charge.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tests::{Reply, Upstream, chat};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{client, key, open_holds, settles};
use crate::process::{Node, Stores, provider};

const CLIENTS: usize = if cfg!(debug_assertions) { 40 } else { 100 };
const READ_BYTES: usize = 1 << 10;

/// The write time-out, and the latest moment of the cut-off: the kernels' buffers fill up first.
const WRITE_TIMEOUT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 3 } else { 30 });
const CUT_WITHIN: Duration = Duration::from_secs(if cfg!(debug_assertions) { 30 } else { 90 });

const MEMORY_LIMIT_KIB: usize = 256;

pub(crate) fn run() -> bool {
    crate::runtime(2).block_on(async {
        let upstream = Upstream::start().await;
        let words = vec!["x".repeat(10_000); 1_000];
        upstream.always(Reply::chat_stream(words.iter().map(String::as_str)));
        let tables = format!(
            "[rate_limits]\nfree = 1000000\naddress = 1000000\n\
             [limits]\nrequests_per_account = {{ free = 1000000 }}\nclient_write_timeout_ms = {}\n\
             hang_up_drain_ms = 1000\n{}",
            WRITE_TIMEOUT.as_millis(),
            provider("long", &upstream)
                .replace("= 100000\n", "= 8000000\n")
                .replace("max_output_tokens = 1000", "max_output_tokens = 4000000"),
        );
        let mut node = Node::new(&Stores::default(), &tables);
        node.start();
        let key = key(&node);
        let client = client(&node, &key);
        let address = node.address();
        // The permanent memory of any stream is already allocated.
        let warm = read_by_http1(address, &key, usize::MAX).await;
        assert!(warm > 0, "it is served");
        let mut passed = true;
        for version in ["HTTP/1.1", "HTTP/2"] {
            let before = node.own_kib();
            let mut readers = JoinSet::new();
            for _ in 0..CLIENTS {
                let key = key.clone();
                readers.spawn(async move {
                    match version {
                        "HTTP/1.1" => read_by_http1(address, &key, READ_BYTES).await,
                        _ => read_by_http2(address, &key).await,
                    }
                });
            }
            let began = Instant::now();
            let mut most = 0;
            let mut held = open_holds(&client).await;
            while began.elapsed() < CUT_WITHIN {
                most = most.max(node.own_kib());
                held = open_holds(&client).await;
                if held == Some(0) && began.elapsed() > WRITE_TIMEOUT {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let cut_after = began.elapsed();
            readers.abort_all();
            let settled = settles(&client, Duration::from_secs(15)).await;
            let each = most.saturating_sub(before) / CLIENTS;
            let sound = node.is_sound();
            println!(
                "H3 {version}: {CLIENTS} clients that read {READ_BYTES} bytes a second: {each} KiB each at most (limit \
                 {MEMORY_LIMIT_KIB}); {held:?} holds open after {cut_after:.1?} (limit {CUT_WITHIN:.0?}, write time-out \
                 {WRITE_TIMEOUT:?}); all settled: {settled}, the ledger is sound: {sound}"
            );
            passed &= each <= MEMORY_LIMIT_KIB && held == Some(0) && settled && sound;
        }
        passed
    })
}

fn body() -> String {
    let mut body = chat("long", "x");
    body["stream"] = true.into();
    body["max_tokens"] = 3_000_000.into();
    body.to_string()
}

/// Reads this many bytes per second, to the end; returns the total.
async fn read_by_http1(address: SocketAddr, key: &str, per_second: usize) -> usize {
    let body = body();
    let request = format!(
        "POST /chat HTTP/1.1\r\nHost: {address}\r\nX-Api-Key: {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut socket = TcpStream::connect(address).await.expect("it listens");
    socket
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    let mut buffer = vec![0; per_second.min(1 << 16)];
    let mut bytes = 0;
    while let Ok(read @ 1..) = socket.read(&mut buffer).await {
        bytes += read;
        if per_second == READ_BYTES {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    bytes
}

async fn read_by_http2(address: SocketAddr, key: &str) -> usize {
    let socket = TcpStream::connect(address).await.expect("it listens");
    let (send, connection) = h2::client::handshake(socket)
        .await
        .expect("it speaks HTTP/2");
    let driver = tokio::spawn(connection);
    let mut send = send.ready().await.expect("it is open");
    let request = http::Request::post(format!("http://{address}/chat"))
        .header("x-api-key", key)
        .header("content-type", "application/json")
        .body(())
        .expect("a legal request");
    let (answer, mut stream) = send.send_request(request, false).expect("it is sent");
    stream
        .send_data(Bytes::from(body()), true)
        .expect("it is sent");
    let mut bytes = 0;
    if let Ok(answer) = answer.await {
        let mut body = answer.into_body();
        // The client acknowledges a KiB per second of the received bytes.
        while let Some(Ok(data)) = body.data().await {
            bytes += data.len();
            for piece in data.chunks(READ_BYTES) {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if body.flow_control().release_capacity(piece.len()).is_err() {
                    break;
                }
            }
        }
    }
    driver.abort();
    bytes
}
