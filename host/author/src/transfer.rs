//! The progress of uploads and downloads on standard error.

use std::io::{IsTerminal, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// Bytes of a body that the connection gets at once.
const PIECE_BYTES: usize = 64 << 10;

/// The interval between two updates of a terminal.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// The verbs for the two phases of a transfer.
#[derive(Clone, Copy)]
pub struct TransferWords {
    /// The transfer of the bytes, such as "Uploading".
    pub moving: &'static str,
    /// The wait for the response, such as "Checking".
    pub after: &'static str,
}

/// Waits for a response and shows progress. A terminal gets a percentage; any other output gets one line for each phase.
///
/// `moved` counts the bytes that are transferred, of `total`.
pub async fn with_progress<T>(
    response: impl Future<Output = T>,
    moved: &AtomicUsize,
    total: usize,
    TransferWords { moving, after }: TransferWords,
) -> T {
    let mut stderr = std::io::stderr();
    let is_terminal = stderr.is_terminal();
    let mut response = std::pin::pin!(response);
    let mut ticks = tokio::time::interval(SHOW_EVERY);
    let mut moved_at = None;
    let mut last = String::new();
    loop {
        tokio::select! {
            response = &mut response => {
                if is_terminal {
                    let _ = write!(stderr, "\r\x1b[K");
                }
                return response;
            }
            _ = ticks.tick() => {}
        }
        let moved = moved.load(Ordering::Relaxed);
        let line = if moved < total {
            let percent = 100 * moved / total.max(1);
            match is_terminal {
                true => format!("{moving} {} … {percent} %", size(total)),
                false => format!("{moving} {} …", size(total)),
            }
        } else {
            let since = moved_at.get_or_insert_with(Instant::now).elapsed();
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

/// A request body that counts the bytes that the connection has taken.
pub struct CountedBody {
    bytes: Bytes,
    moved: Arc<AtomicUsize>,
}

impl CountedBody {
    /// Wraps a body; `moved` grows as the connection takes it.
    pub fn new(bytes: Bytes, moved: Arc<AtomicUsize>) -> Self {
        Self { bytes, moved }
    }
}

impl http_body::Body for CountedBody {
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
        self.moved.fetch_add(length, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
