//! The lines of the log on their way to standard error.
//!
//! Warnings and errors are written at once, after all lines before them. Other lines, such as those of requests, wait in
//! a queue until a thread writes them together: one system call writes many lines, and a reader that is slow or stuck
//! delays no request. If the queue is full, weir drops such lines and counts them.

use std::io::{self, Write};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Maximum bytes of waiting lines: some thousand lines.
const MAX_WAITING_BYTES: usize = 1 << 20;

/// Time for which the thread waits for more lines.
const COLLECT: Duration = Duration::from_millis(5);

/// The process's lines.
static LINES: LazyLock<LineQueue> = LazyLock::new(LineQueue::default);

/// Lines that wait to be written.
#[derive(Default)]
struct LineQueue {
    waiting: Mutex<Vec<u8>>,
    /// Wakes the thread when the first line waits.
    came: Condvar,
    /// Held during a write, which keeps the lines in order; the buffer of the write before.
    written: Mutex<Vec<u8>>,
    dropped: Counter,
}

/// The log's output.
pub(super) struct LogOutput;

/// Writes a line: at once, or by the thread.
pub(super) struct LineWriter {
    at_once: bool,
}

/// Writes the waiting lines when it is dropped.
pub struct LogGuard(());

/// Starts the thread.
pub(super) fn start() -> io::Result<LogGuard> {
    let thread = thread::Builder::new().name("weir-log".to_owned());
    thread.spawn(|| LINES.run())?;
    Ok(LogGuard(()))
}

/// Registers the counter of dropped lines.
pub fn register(registry: &mut Registry) {
    registry.register(
        "log_lines_dropped",
        "Log lines that were dropped because standard error accepts them too slowly",
        LINES.dropped.clone(),
    );
}

/// Lets the thread write a line.
pub(super) fn push(line: &[u8]) {
    LINES.push(line);
}

impl LineQueue {
    fn run(&self) {
        loop {
            let none = |waiting: &mut Vec<u8>| waiting.is_empty();
            drop(self.came.wait_while(lock(&self.waiting), none));
            thread::sleep(COLLECT);
            self.write(b"");
        }
    }

    fn push(&self, line: &[u8]) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() + line.len() > MAX_WAITING_BYTES {
            self.dropped.inc();
            return;
        }
        waiting.extend_from_slice(line);
        if waiting.len() == line.len() {
            self.came.notify_one();
        }
    }

    /// Writes all waiting lines, and then this one.
    fn write(&self, line: &[u8]) {
        let mut written = lock(&self.written);
        std::mem::swap(&mut *lock(&self.waiting), &mut *written);
        written.extend_from_slice(line);
        // Nothing else can report a failed write of the log, as on a full disk.
        let _ = io::stderr().write_all(&written);
        written.clear();
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        LINES.write(b"");
    }
}

impl MakeWriter<'_> for LogOutput {
    type Writer = LineWriter;

    fn make_writer(&self) -> LineWriter {
        LineWriter { at_once: true }
    }

    fn make_writer_for(&self, metadata: &Metadata<'_>) -> LineWriter {
        let at_once = *metadata.level() <= Level::WARN;
        LineWriter { at_once }
    }
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.at_once {
            true => LINES.write(line),
            false => LINES.push(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock(lines: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}
