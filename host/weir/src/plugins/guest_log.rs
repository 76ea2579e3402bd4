//! What a guest says to the operator's log: capped, cut and escaped.

use std::sync::Arc;

use super::bindings::log::{Host, Level};
use super::engine::Guest;
use super::limits::Limits;

/// Counts a guest's lines and drops those past the cap.
pub(super) struct GuestLog {
    plugin: Arc<str>,
    lines_left: u32,
    line_bytes: usize,
    dropped: u64,
}

impl GuestLog {
    pub(super) fn new(plugin: Arc<str>, limits: &Limits) -> Self {
        Self {
            plugin,
            lines_left: limits.log_lines,
            line_bytes: limits.log_line_bytes,
            dropped: 0,
        }
    }

    fn write(&mut self, level: Level, message: &str) {
        let Some(left) = self.lines_left.checked_sub(1) else {
            self.dropped += 1;
            return;
        };
        self.lines_left = left;
        let plugin = &*self.plugin;
        let message = printable(message, self.line_bytes);
        match level {
            Level::Debug => tracing::debug!(target: "weir::guest", plugin, "{message}"),
            Level::Info => tracing::info!(target: "weir::guest", plugin, "{message}"),
            Level::Warn => tracing::warn!(target: "weir::guest", plugin, "{message}"),
            Level::Error => tracing::error!(target: "weir::guest", plugin, "{message}"),
        }
    }
}

impl Drop for GuestLog {
    fn drop(&mut self) {
        if self.dropped > 0 {
            tracing::warn!(target: "weir::guest", plugin = &*self.plugin, lines = self.dropped, "log lines dropped: over the limit");
        }
    }
}

impl Host for Guest {
    async fn write(&mut self, level: Level, message: String) -> wasmtime::Result<()> {
        self.log.write(level, &message);
        Ok(())
    }
}

/// At most `bytes` bytes of a text that a stranger wrote, fit for one line of a log or an error: control
/// characters (line breaks, escapes, NUL) are escaped, so that nothing in it can pass for another line.
pub(crate) fn printable(text: &str, bytes: usize) -> String {
    let mut line = String::with_capacity(text.len().min(bytes));
    for character in text.chars() {
        if line.len() + character.len_utf8() > bytes {
            line.push('…');
            break;
        }
        let reorders = matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() || reorders {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cannot_forge_another_or_drive_the_terminal() {
        assert_eq!(
            printable("a\r\nERROR b\0\u{1b}[31m\u{202e}", 100),
            "a\\r\\nERROR b\\u{0}\\u{1b}[31m\\u{202e}"
        );
        assert_eq!(printable("żółw", 5), "żó…");
    }
}
