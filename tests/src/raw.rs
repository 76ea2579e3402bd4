//! HTTP/1.1 written and read without a library, for loads whose clients must cost little, and for the admin socket.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// The head of a response.
#[derive(Debug, Clone, Copy)]
pub struct RawResponse {
    /// The status.
    pub status: u16,
    /// The time of the response's first bytes.
    pub first: Instant,
}

/// Reads one response into a buffer: up to its length, or to the last chunk.
///
/// # Errors
///
/// The connection ends or fails before.
pub async fn read_response(
    connection: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<RawResponse> {
    buffer.clear();
    let (mut first, mut head) = (None, None);
    loop {
        if connection.read_buf(buffer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let first = *first.get_or_insert_with(Instant::now);
        if head.is_none() {
            head = read_head(buffer)?;
        }
        let is_whole = match head {
            None => false,
            Some((_, Some(end))) => buffer.len() >= end,
            Some((_, None)) => buffer.ends_with(b"0\r\n\r\n"),
        };
        if let Some((status, _)) = head
            && is_whole
        {
            return Ok(RawResponse { status, first });
        }
    }
}

/// Returns the status, and the end of a body with a length; `None` while the head is incomplete.
fn read_head(response: &[u8]) -> std::io::Result<Option<(u16, Option<usize>)>> {
    let Some(end) = memchr::memmem::find(response, b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&response[..end]).to_lowercase();
    let status = head.get(9..12).and_then(|status| status.parse().ok());
    let status = status.ok_or(std::io::ErrorKind::InvalidData)?;
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    Ok(Some((status, length.map(|length: usize| end + 4 + length))))
}

/// The admin socket of a gateway: an operator of its machine changes keys and users there.
pub struct AdminSocket(PathBuf);

/// A response of the admin socket.
#[derive(Debug)]
pub struct AdminAnswer {
    /// The status.
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    /// The body, if it is JSON.
    pub json: Value,
}

impl AdminSocket {
    /// The socket of the gateway with this data folder.
    pub fn of(data: &Path) -> Self {
        Self(data.join("admin.sock"))
    }

    /// Sends a GET.
    pub async fn get(&self, path: &str) -> AdminAnswer {
        self.send("GET", path, "").await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: &Value) -> AdminAnswer {
        self.send("POST", path, &body.to_string()).await
    }

    /// Creates a user with a key, and returns the key.
    pub async fn create_key(&self, user: &str) -> String {
        let body = serde_json::json!({ "user_id": user, "name": "load" });
        let created = self.post("/admin/keys", &body).await;
        assert_eq!(created.status, 201, "{}", created.json);
        let key = created.json["api_key"].as_str().expect("a key");
        key.to_owned()
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> AdminAnswer {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut connection = UnixStream::connect(&self.0).await.expect("it listens");
        let sent = connection.write_all(request.as_bytes()).await;
        sent.expect("it is open");
        let mut response = String::new();
        let read = connection.read_to_string(&mut response).await;
        read.expect("it responds");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        AdminAnswer {
            status: head[9..12].parse().expect("a status"),
            head: head.to_lowercase(),
            json: serde_json::from_str(body).unwrap_or(Value::Null),
        }
    }
}
