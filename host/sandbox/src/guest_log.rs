//! A guest's lines in the operator's log: limited in number, truncated and escaped.

use std::fmt::Display;
use std::sync::Arc;

use tracing::Level;

use crate::limits::GuestLimits;
use crate::printable;

/// Counts a guest's lines and drops lines past the limit.
pub(crate) struct GuestLog {
    plugin: Arc<str>,
    lines_left: u32,
    line_bytes: usize,
    dropped: u64,
}

impl GuestLog {
    pub(crate) fn new(plugin: Arc<str>, limits: &GuestLimits) -> Self {
        Self {
            plugin,
            lines_left: limits.log_lines,
            line_bytes: limits.log_line_bytes,
            dropped: 0,
        }
    }

    /// Writes a line, unless the guest has reached its limit.
    pub(crate) fn write(&mut self, level: Level, message: &str) {
        let Some(left) = self.lines_left.checked_sub(1) else {
            self.dropped += 1;
            return;
        };
        self.lines_left = left;
        let plugin = &*self.plugin;
        let message = printable(message, self.line_bytes);
        match level {
            Level::DEBUG => tracing::debug!(target: "weir::guest", plugin, "{message}"),
            Level::WARN => tracing::warn!(target: "weir::guest", plugin, "{message}"),
            Level::ERROR => tracing::error!(target: "weir::guest", plugin, "{message}"),
            _ => tracing::info!(target: "weir::guest", plugin, "{message}"),
        }
    }
}

impl GuestLog {
    /// Logs that the guest was stopped, and its last output.
    pub(crate) fn give_up(&self, error: &dyn Display, stderr_tail: &str) {
        let plugin = &*self.plugin;
        match stderr_tail {
            "" => tracing::warn!(target: "weir::guest", plugin, %error, "a guest is stopped"),
            words => {
                tracing::warn!(target: "weir::guest", plugin, %error, "a guest is stopped; its last words: {words}");
            }
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
