//! Request bodies: their size, and their time to arrive.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tests::{Gateway, Upstream, patiently};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::anthropic_messages::said;

const MAX_BYTES: usize = 32 << 20;

/// A body of this size with an image.
fn with_image(path: &str, bytes: usize) -> (String, String) {
    let body = |image: &str| match path {
        "/v1/messages" => {
            let source = json!({ "type": "base64", "media_type": "image/png", "data": image });
            let content = json!([{ "type": "image", "source": source }]);
            json!({ "model": "scripted", "max_tokens": 100, "messages": [{ "role": "user", "content": content }] })
        }
        _ => {
            let url = format!("data:image/png;base64,{image}");
            let content = json!([{ "type": "input_image", "image_url": url }]);
            json!({ "model": "scripted", "max_output_tokens": 100, "input": [{ "role": "user", "content": content }] })
        }
    };
    let left = bytes - body("").to_string().len();
    let image = STANDARD.encode(vec![7; left / 4 * 3]);
    let mut body = body(&image).to_string();
    // A body may end with spaces.
    body += &" ".repeat(bytes - body.len());
    (body, image)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_32_mib_reaches_the_provider_and_a_byte_more_is_refused() {
    let upstream = Upstream::start().await;
    upstream.always(said("anthropic", "So"));
    let gateway = Gateway::with_adapter("anthropic", &upstream).await;
    let client = gateway.client();
    for path in ["/v1/messages", "/v1/responses"] {
        let (body, image) = with_image(path, MAX_BYTES);
        let answer = client
            .try_post_bytes(path, body.into())
            .await
            .expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let sent = upstream.next_request().await.json();
        let data = &sent["messages"][0]["content"][0]["source"]["data"];
        assert!(data.as_str() == Some(&image), "{path}");
        let (body, _) = with_image(path, MAX_BYTES + 1);
        let answer = client
            .try_post_bytes(path, body.into())
            .await
            .expect("an answer");
        answer.error(413, "PAYLOAD_TOO_LARGE");
    }
    assert_eq!(upstream.count(), 2);
}

/// A connection that has sent the head of a chat, and announced a body of this size.
async fn begin(gateway: &Gateway, bytes: usize) -> TcpStream {
    let head = format!(
        "POST /chat HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {bytes}\r\n\r\n",
        gateway.address(),
        gateway.key(),
    );
    let mut socket = TcpStream::connect(gateway.address())
        .await
        .expect("it listens");
    socket.write_all(head.as_bytes()).await.expect("it reads");
    socket
}

/// The status of the response.
async fn status(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    patiently(socket.read_to_end(&mut answer))
        .await
        .expect("no reset");
    String::from_utf8_lossy(&answer)
        .chars()
        .skip("HTTP/1.1 ".len())
        .take(3)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_keeps_512_kib_a_second_is_heard_out_and_a_drip_is_not() {
    let gateway = Gateway::builder()
        .tables("[limits]\nbody_timeout_ms = 1000\n")
        .start()
        .await;
    let limit = Duration::from_secs(1);
    let slow = async {
        // 640 KiB in a second, for more than three times the limit.
        let body = json!({ "model": "demo", "messages": [{ "role": "user", "content": "Hello" }] });
        let body = body.to_string() + &" ".repeat(35 << 16);
        let mut socket = begin(&gateway, body.len()).await;
        let began = Instant::now();
        let mut pace = tokio::time::interval(Duration::from_millis(100));
        for piece in body.as_bytes().chunks(64 << 10) {
            pace.tick().await;
            socket.write_all(piece).await.expect("it reads");
        }
        assert!(began.elapsed() > 3 * limit);
        assert_eq!(status(&mut socket).await, "200");
    };
    let drip = async {
        let mut socket = begin(&gateway, 1_000).await;
        let began = Instant::now();
        let mut pace = tokio::time::interval(Duration::from_millis(100));
        let (mut reader, mut writer) = socket.split();
        let mut answer = [0; 12];
        let answered = tokio::select! {
            answered = reader.read_exact(&mut answer) => answered,
            _ = async { while { pace.tick().await; writer.write_all(b" ").await.is_ok() } {} } => unreachable!("it answers first"),
        };
        answered.expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 408");
        assert!(began.elapsed() >= limit && began.elapsed() < 4 * limit);
    };
    let stalled = async {
        // The bytes so far give it another second, and no more.
        let mut socket = begin(&gateway, 2 << 20).await;
        let began = Instant::now();
        socket
            .write_all(&[b' '; 512 << 10])
            .await
            .expect("it reads");
        assert_eq!(status(&mut socket).await, "408");
        assert!(began.elapsed() >= 2 * limit && began.elapsed() < 5 * limit);
    };
    tokio::join!(slow, drip, stalled);
}
