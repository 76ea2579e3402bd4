//! What plugins may use, and when one is taken out of service: `[plugins]`.

use serde::Deserialize;

use super::compiler::CompileLimits;
use super::limits::{Limits, MAX_MEMORY_BYTES};

/// Bounds on plugins: `[plugins]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PluginSettings {
    /// Bounds on every plugin's exchanges: `[plugins.limits]`.
    pub limits: Limits,
    /// Bounds on compiling a plugin that arrives at run time: `[plugins.compile]`.
    pub compile: CompileLimits,
    /// Traps within a minute for which a plugin is taken out of service; 0 for never. Default 5.
    pub quarantine_traps: u32,
}

impl Default for PluginSettings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            compile: CompileLimits::default(),
            quarantine_traps: 5,
        }
    }
}

impl PluginSettings {
    /// What is wrong with the settings, beyond what types can say; each sentence names the setting.
    pub fn problems(&self) -> Vec<String> {
        let Self {
            limits, compile, ..
        } = self;
        let mut problems = Vec::new();
        for (setting, value) in [
            ("limits.memory_bytes", limits.memory_bytes),
            ("limits.cpu_ms", limits.cpu_ms),
            ("limits.call_timeout_ms", limits.call_timeout_ms),
            ("limits.call_bytes", limits.call_bytes as u64),
            ("limits.handles", limits.handles as u64),
            ("compile.timeout_ms", compile.timeout_ms),
            ("compile.memory_mib", compile.memory_mib),
        ] {
            if value == 0 {
                problems.push(format!("`plugins.{setting}` must be more than 0"));
            }
        }
        if limits.memory_bytes > MAX_MEMORY_BYTES {
            problems.push(format!(
                "`plugins.limits.memory_bytes` is {}; a plugin can have {MAX_MEMORY_BYTES} at most",
                limits.memory_bytes
            ));
        }
        problems
    }
}
