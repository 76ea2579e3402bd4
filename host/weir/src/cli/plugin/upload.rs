//! Uploading a component, and saying on standard error how far that, or another way of one, is.

use std::io::{IsTerminal, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body::{Frame, SizeHint};
use reqwest::Body;
use serde::de::DeserializeOwned;
use weir_plugins::signature::Signature;

use crate::cli::connection::{Connection, GatewayAnswer};
use crate::plugins::routes::SIGNATURE_HEADER;

/// Bytes of a body that are handed to the connection in one go.
const PIECE_BYTES: usize = 64 << 10;

/// How often a terminal is shown how far an upload is.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// Puts a component at a path of a gateway.
pub(super) async fn upload<T: DeserializeOwned>(
    connection: &Connection,
    path: &str,
    component: Bytes,
    signature: Option<&Signature>,
) -> anyhow::Result<GatewayAnswer<T>> {
    let total = component.len();
    let sent = Arc::default();
    let body = Upload::new(component, Arc::clone(&sent));
    let body = Some(("application/wasm", Body::wrap(body)));
    let mut headers = HeaderMap::new();
    if let Some(signature) = signature {
        headers.insert(SIGNATURE_HEADER, signature.to_json().try_into()?);
    }
    let answer = connection.send_with(Method::PUT, path, headers, body);
    let words = Words {
        moving: "Uploading",
        after: "Compiling and checking",
    };
    watched(answer, &sent, total, words).await?.parse()
}

/// What is said while bytes are on their way, and while what comes of them is awaited.
#[derive(Clone, Copy)]
pub(super) struct Words {
    pub(super) moving: &'static str,
    pub(super) after: &'static str,
}

/// Waits for what comes of bytes that are on their way. A terminal sees how far they are; anything else gets a line for each
/// step.
pub(super) async fn watched<T>(
    answer: impl Future<Output = T>,
    sent: &AtomicUsize,
    total: usize,
    Words { moving, after }: Words,
) -> T {
    let mut stderr = std::io::stderr();
    let is_terminal = stderr.is_terminal();
    let mut answer = std::pin::pin!(answer);
    let mut ticks = tokio::time::interval(SHOW_EVERY);
    let mut uploaded_at = None;
    let mut last = String::new();
    loop {
        tokio::select! {
            answer = &mut answer => {
                if is_terminal {
                    let _ = write!(stderr, "\r\x1b[K");
                }
                return answer;
            }
            _ = ticks.tick() => {}
        }
        let sent = sent.load(Ordering::Relaxed);
        let line = if sent < total {
            let percent = 100 * sent / total.max(1);
            match is_terminal {
                true => format!("{moving} {} … {percent} %", size(total)),
                false => format!("{moving} {} …", size(total)),
            }
        } else {
            let since = uploaded_at.get_or_insert_with(Instant::now).elapsed();
            match is_terminal {
                true => format!("{after} … {} s", since.as_secs()),
                false => format!("{after} …"),
            }
        };
        if line != last {
            let _ = match is_terminal {
                true => write!(stderr, "\r\x1b[K{line}"),
                false => writeln!(stderr, "{line}"),
            };
            let _ = stderr.flush();
            last = line;
        }
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// A body that counts what the connection has taken of it.
pub(super) struct Upload {
    bytes: Bytes,
    sent: Arc<AtomicUsize>,
}

impl Upload {
    pub(super) fn new(bytes: Bytes, sent: Arc<AtomicUsize>) -> Self {
        Self { bytes, sent }
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.bytes.len().min(PIECE_BYTES);
        let piece = self.bytes.split_to(length);
        self.sent.fetch_add(length, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
