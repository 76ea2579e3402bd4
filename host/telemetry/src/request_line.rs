//! A line about a request, which the log would otherwise write as an event: the subscriber formats each of its many fields
//! through several layers, and takes twice as many instructions for the same line (20,000 as text, 24,000 as JSON).

use std::fmt::{self, Write};
use std::sync::OnceLock;

use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::format::LogFormat;
use super::lines;

/// The usual bytes of a line.
const USUAL_BYTES: usize = 512;

/// The form of the log's lines, once it has started.
pub(super) static FORM: OnceLock<LineForm> = OnceLock::new();

/// The form of the log's lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineForm {
    pub(super) format: LogFormat,
    /// Whether a terminal shows the text.
    pub(super) is_colored: bool,
}

/// A line in the form of the log.
pub struct RequestLine {
    format: LogFormat,
    target: &'static str,
    line: String,
}

impl RequestLine {
    /// Begins a line with a message; `None` if the log has not started.
    pub fn new(level: Level, target: &'static str, message: &'static str) -> Option<Self> {
        let &LineForm { format, is_colored } = FORM.get()?;
        let mut line = String::with_capacity(USUAL_BYTES);
        let (dim, green, off) = match is_colored {
            true => ("\x1b[2m", "\x1b[32m", "\x1b[0m"),
            false => ("", "", ""),
        };
        let begun = match format {
            LogFormat::Text => write!(line, "{dim}")
                .and_then(|()| SystemTime.format_time(&mut Writer::new(&mut line)))
                .and_then(|()| {
                    write!(
                        line,
                        "{off} {green}{level:>5}{off} {dim}{target}:{off} {message}"
                    )
                }),
            LogFormat::Json => write!(line, "{{\"timestamp\":\"")
                .and_then(|()| SystemTime.format_time(&mut Writer::new(&mut line)))
                .and_then(|()| write!(line, "\",\"level\":\"{level}\",\"message\":\"{message}\"")),
        };
        begun.ok()?;
        Some(Self {
            format,
            target,
            line,
        })
    }

    /// Adds a text, if there is one.
    pub fn text(&mut self, name: &'static str, text: Option<&str>) {
        let Some(text) = text else { return };
        self.name(name);
        match self.format {
            LogFormat::Text => self.put(format_args!("{text:?}")),
            LogFormat::Json => {
                // A text is always valid JSON.
                let quoted = serde_json::to_string(text).unwrap_or_default();
                self.line.push_str(&quoted);
            }
        }
    }

    /// Adds a word of letters and digits, such as a method or a trace's id, if there is one.
    pub fn word(&mut self, name: &'static str, word: Option<impl fmt::Display>) {
        let Some(word) = word else { return };
        self.name(name);
        match self.format {
            LogFormat::Text => self.put(format_args!("{word}")),
            LogFormat::Json => self.put(format_args!("\"{word}\"")),
        }
    }

    /// Adds a number, if there is one.
    pub fn number(&mut self, name: &'static str, number: Option<impl fmt::Debug>) {
        let Some(number) = number else { return };
        self.name(name);
        self.put(format_args!("{number:?}"));
    }

    /// Ends the line, and hands it to the log's thread.
    pub fn write(mut self) {
        if self.format == LogFormat::Json {
            self.text("target", Some(self.target));
            self.line.push('}');
        }
        self.line.push('\n');
        lines::push(self.line.as_bytes());
    }

    fn name(&mut self, name: &'static str) {
        let (before, after) = match self.format {
            LogFormat::Text => (" ", "="),
            LogFormat::Json => (",\"", "\":"),
        };
        for part in [before, name, after] {
            self.line.push_str(part);
        }
    }

    fn put(&mut self, value: fmt::Arguments<'_>) {
        // A string takes everything.
        let _ = self.line.write_fmt(value);
    }
}
