//! The log: [`lines`] on standard error, as text or JSON (`log_format`), filtered by `WEIR_LOG` (e.g. `debug`,
//! `weir=debug,hyper=info`). And traces for operators with a collector: the recorded [`spans`], their [`export`] to
//! the collector, and the [`propagation`] of a trace from process to process.

pub mod export;
mod format;
pub mod label;
pub mod lines;
pub mod propagation;
pub mod request_ids;
pub mod request_line;
pub mod settings;
pub mod spans;

use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Format;
use weir_sandbox::printable;

pub use self::format::LogFormat;
use self::lines::{LogGuard, LogOutput};
use self::request_ids::WithRequestIds;
use self::request_line::LineForm;

/// Upper bounds of the latency histograms' buckets, in seconds: from the demo provider's responses to the longest streams.
pub const LATENCY_BUCKETS_SECONDS: [f64; 10] =
    [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];

/// Starts the log at this level unless `WEIR_LOG` sets another. Call once, and keep the guard until the end of the
/// process.
///
/// # Errors
///
/// The log has no thread.
pub fn start(format: LogFormat, level: &str) -> io::Result<LogGuard> {
    let guard = lines::start()?;
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(LogOutput)
        // The message about such an error would go to the same place, and panic there.
        .log_internal_errors(false);
    let is_colored = io::stderr().is_terminal();
    let _ = request_line::FORM.set(LineForm { format, is_colored });
    match format {
        LogFormat::Text => {
            let with_ids = |lines: Format| WithRequestIds {
                format,
                lines: lines.with_ansi(is_colored),
            };
            lines
                .with_ansi(is_colored)
                .map_event_format(with_ids)
                .init();
        }
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .map_event_format(|lines| WithRequestIds { format, lines })
            .init(),
    }
    // A panic is logged like any other line, so that programs can parse it.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let text = panic.payload_as_str().unwrap_or_default();
        tracing::error!(place, "a task panicked: {}", printable(text, 1_000));
    }));
    Ok(guard)
}

/// A limit on log lines that strangers cause: lines per second, and a count of the rest.
pub struct LineLimit {
    per_second: u32,
    state: Mutex<LineState>,
}

struct LineState {
    second: Option<Instant>,
    written: u32,
    suppressed: u64,
}

impl LineLimit {
    pub const fn new(per_second: u32) -> Self {
        let state = LineState {
            second: None,
            written: 0,
            suppressed: 0,
        };
        Self {
            per_second,
            state: Mutex::new(state),
        }
    }

    /// Returns whether another line may be written now: `Some` with the number of lines dropped since the last one.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over =
            |began: Instant| now.saturating_duration_since(began) >= Duration::from_secs(1);
        if state.second.is_none_or(is_over) {
            state.second = Some(now);
            state.written = 0;
        }
        if state.written == self.per_second {
            state.suppressed += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_a_second_are_written_and_the_rest_counted() {
        let limit = LineLimit::new(2);
        let began = Instant::now();
        let at = |milliseconds| limit.admit_at(began + Duration::from_millis(milliseconds));
        assert_eq!(
            [at(0), at(1), at(2), at(999)],
            [Some(0), Some(0), None, None]
        );
        assert_eq!([at(1_000), at(1_001), at(1_002)], [Some(2), Some(0), None]);
        assert_eq!(at(9_000), Some(1));
    }
}
