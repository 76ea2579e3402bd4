//! The lines of the log on their way to standard error.
//!
//! Lines wait in a queue until the log's thread writes them together: one system call writes many lines. The thread writes
//! warnings and errors immediately, and collects other lines for some milliseconds. weir drops and counts the lines for
//! which the queue has no room, and those that standard error does not accept, as on a full disk. When it accepts lines
//! again, the log says how many are missing.
//!
//! **Invariant:** only the log's thread writes to standard error while a gateway runs. A reader that is slow or stuck delays
//! no request, no probe and no shutdown.

use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Maximum bytes of waiting lines: some thousand lines.
const MAX_WAITING_BYTES: usize = 1 << 20;

/// Additional bytes for warnings and errors: lines of requests cannot displace them.
const URGENT_BYTES: usize = MAX_WAITING_BYTES / 4;

/// Time for which the thread waits for more lines.
const COLLECT: Duration = Duration::from_millis(5);

/// Time between two attempts if standard error is a non-blocking pipe without room.
const RETRY: Duration = Duration::from_millis(10);

/// Time that standard error has at the end of the process to accept the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The process's lines.
static LINES: LazyLock<LineQueue> = LazyLock::new(LineQueue::default);

/// Lines that wait to be written.
#[derive(Default)]
struct LineQueue {
    waiting: Mutex<WaitingLines>,
    /// Wakes the thread: lines wait.
    came: Condvar,
    /// Wakes the end of the process: no line waits.
    written: Condvar,
    dropped: Counter,
}

#[derive(Default)]
struct WaitingLines {
    bytes: Vec<u8>,
    /// Whether a warning or an error is among them.
    is_urgent: bool,
    /// Whether the thread writes earlier lines.
    is_writing: bool,
}

/// Standard error, or another output.
struct LineOutput<W> {
    output: W,
    /// Whether the last write ended within a line.
    is_torn: bool,
}

pub(super) struct LogOutput;

/// Hands a line to the thread.
pub(super) struct LineWriter {
    is_urgent: bool,
}

/// Waits for the last lines when it is dropped, for a bounded time.
pub struct LogGuard(());

pub(super) fn start() -> io::Result<LogGuard> {
    let thread = thread::Builder::new().name("weir-log".to_owned());
    thread.spawn(|| LINES.run(io::stderr()))?;
    Ok(LogGuard(()))
}

/// Registers the counter of dropped lines.
pub fn register(registry: &mut Registry) {
    registry.register(
        "log_lines_dropped",
        "Log lines that were lost because standard error accepts lines too slowly or not at all",
        LINES.dropped.clone(),
    );
}

/// Lets the thread write a line.
pub(super) fn push(line: &[u8]) {
    LINES.push(line, false);
}

impl LineQueue {
    fn run(&self, output: impl Write) {
        let mut output = LineOutput {
            output,
            is_torn: false,
        };
        let (mut batch, mut reported) = (Vec::new(), 0);
        loop {
            self.take(&mut batch);
            let lost = output.write(&batch);
            self.dropped.inc_by(lost);
            let dropped = self.dropped.get();
            if lost == 0 && dropped > reported {
                tracing::warn!(
                    lines = dropped - reported,
                    "log lines are missing before this one: standard error did not accept them"
                );
                reported = dropped;
            }
        }
    }

    /// Waits for lines, and moves them into an empty batch.
    fn take(&self, batch: &mut Vec<u8>) {
        batch.clear();
        let mut waiting = lock(&self.waiting);
        waiting.is_writing = false;
        if waiting.bytes.is_empty() {
            self.written.notify_all();
        }
        let none = |waiting: &mut WaitingLines| waiting.bytes.is_empty();
        let waiting = self.came.wait_while(waiting, none);
        let waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let not_urgent = |waiting: &mut WaitingLines| !waiting.is_urgent;
        let collected = self.came.wait_timeout_while(waiting, COLLECT, not_urgent);
        let (mut waiting, _) = collected.unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut waiting.bytes, batch);
        waiting.is_urgent = false;
        waiting.is_writing = true;
    }

    fn push(&self, line: &[u8], is_urgent: bool) {
        let mut waiting = lock(&self.waiting);
        let max_bytes = match is_urgent {
            true => MAX_WAITING_BYTES + URGENT_BYTES,
            false => MAX_WAITING_BYTES,
        };
        if waiting.bytes.len() + line.len() > max_bytes {
            self.dropped.inc();
            return;
        }
        let is_first = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line);
        waiting.is_urgent |= is_urgent;
        if is_first || is_urgent {
            self.came.notify_one();
        }
    }

    /// Waits until all lines are written, for a bounded time.
    fn finish(&self) {
        let mut waiting = lock(&self.waiting);
        // The thread need not collect more lines.
        waiting.is_urgent = true;
        self.came.notify_one();
        let some = |waiting: &mut WaitingLines| waiting.is_writing || !waiting.bytes.is_empty();
        drop(self.written.wait_timeout_while(waiting, LAST_LINES, some));
    }
}

impl<W: Write> LineOutput<W> {
    /// Writes lines. Returns the number of lines that are lost.
    fn write(&mut self, lines: &[u8]) -> u64 {
        // The next line must not continue half of an earlier one.
        if self.is_torn && self.write_bytes(b"\n") == 0 {
            return count(lines);
        }
        let written = self.write_bytes(lines);
        let (before, after) = lines.split_at(written);
        self.is_torn = before.last().is_some_and(|last| *last != b'\n');
        count(after)
    }

    /// Returns the number of bytes that the output accepts.
    fn write_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match self.output.write(&bytes[written..]) {
                Ok(0) => break,
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY),
                Err(_) => break,
            }
        }
        written
    }
}

fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl LogGuard {
    /// Prints a text after the lines of the log.
    pub fn print(&self, text: &str) {
        LINES.push(text.as_bytes(), true);
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        LINES.finish();
    }
}

impl MakeWriter<'_> for LogOutput {
    type Writer = LineWriter;

    fn make_writer(&self) -> LineWriter {
        LineWriter { is_urgent: true }
    }

    fn make_writer_for(&self, metadata: &Metadata<'_>) -> LineWriter {
        let is_urgent = *metadata.level() <= Level::WARN;
        LineWriter { is_urgent }
    }
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LINES.push(line, self.is_urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock(lines: &Mutex<WaitingLines>) -> MutexGuard<'_, WaitingLines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts so many bytes, and then none.
    struct Disk {
        room: usize,
        written: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let length = bytes.len().min(self.room);
            if length == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= length;
            self.written.extend_from_slice(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_loses_whole_lines_and_counts_them() {
        let disk = Disk {
            room: 9,
            written: Vec::new(),
        };
        let mut output = LineOutput {
            output: disk,
            is_torn: false,
        };
        assert_eq!(output.write(b"one\ntwo\nthree\nfour\n"), 2);
        assert_eq!(output.write(b"five\n"), 1);
        output.output.room = 100;
        assert_eq!(output.write(b"six\nseven\n"), 0);
        assert_eq!(output.output.written, b"one\ntwo\nt\nsix\nseven\n");
    }

    #[test]
    fn warnings_have_room_that_other_lines_cannot_take() {
        let lines = LineQueue::default();
        let line = [b'x'; 1 << 10];
        for _ in 0..2 << 10 {
            lines.push(&line, false);
        }
        assert_eq!(lines.dropped.get(), 1 << 10);
        lines.push(&line, true);
        assert_eq!(lines.dropped.get(), 1 << 10);
        for _ in 0..1 << 10 {
            lines.push(&line, true);
        }
        let waiting = lock(&lines.waiting).bytes.len();
        assert_eq!(waiting, MAX_WAITING_BYTES + URGENT_BYTES);
    }
}
