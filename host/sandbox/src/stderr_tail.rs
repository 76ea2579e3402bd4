//! A guest's last output on its standard error: a panic's text, a traceback. The output explains a trap, which the
//! trap itself does not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::printable::printable;

/// Bytes that are kept: the last bytes, since a traceback ends with the error.
const KEPT_BYTES: usize = 1 << 10;

/// Bytes of the log line: an escaped character takes up to six times its length.
const LINE_BYTES: usize = 6 * KEPT_BYTES;

/// A listener for guests' output as they write it, for a caller that runs one guest at a time.
pub type StderrListener = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// The end of a guest's standard error. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct StderrTail {
    kept: Arc<Mutex<Vec<u8>>>,
    listener: Option<StderrListener>,
}

impl StderrTail {
    pub(crate) fn new(listener: Option<StderrListener>) -> Self {
        Self {
            kept: Arc::default(),
            listener,
        }
    }

    /// Returns the output as one escaped line.
    pub(crate) fn line(&self) -> String {
        let written = self.written();
        let begin = written.len().saturating_sub(KEPT_BYTES);
        printable(
            String::from_utf8_lossy(&written[begin..]).trim_end(),
            LINE_BYTES,
        )
    }

    fn push(&self, bytes: &[u8]) {
        if let Some(listener) = &self.listener {
            listener(bytes);
        }
        let bytes = &bytes[bytes.len().saturating_sub(KEPT_BYTES)..];
        let mut written = self.written();
        // Twice the kept size: not every line then moves all kept bytes.
        if written.len() + bytes.len() > 2 * KEPT_BYTES {
            let surplus = written.len().saturating_sub(KEPT_BYTES);
            written.drain(..surplus);
        }
        written.extend_from_slice(bytes);
    }

    fn written(&self) -> MutexGuard<'_, Vec<u8>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IsTerminal for StderrTail {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for StderrTail {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // Only worlds of WASI p3 need this stream, and weir has no such world.
        Box::new(tokio::io::sink())
    }
}

impl OutputStream for StderrTail {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 << 10)
    }
}

#[async_trait]
impl Pollable for StderrTail {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_much_that_is_written_the_end_is_kept_and_on_one_line() {
        let words = StderrTail::default();
        for number in 0..10_000 {
            words.push(format!("line {number}\r\n").as_bytes());
            assert!(words.written().len() <= 2 * KEPT_BYTES);
        }
        words.push("\u{1b}[31mżółw\n".as_bytes());
        let line = words.line();
        assert!(line.ends_with("line 9999\\r\\n\\u{1b}[31mżółw"), "{line}");
        assert!(line.len() <= LINE_BYTES, "{}", line.len());
        words.push(&[0xff; 5 * KEPT_BYTES]);
        assert_eq!(words.written().len(), 2 * KEPT_BYTES);
        assert!(
            words
                .line()
                .chars()
                .all(|character| character == '\u{fffd}')
        );
    }
}
