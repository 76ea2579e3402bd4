//! What plugins may use, and when one is taken out of service: `[plugins]`.

use serde::Deserialize;
use weir_sandbox::GuestLimits;
use weir_sandbox::compiler::CompileLimits;
use weir_sandbox::limits::MAX_MEMORY_BYTES;

/// Bounds on plugins: `[plugins]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PluginSettings {
    /// Bounds on every plugin's exchanges: `[plugins.limits]`.
    pub limits: GuestLimits,
    /// Bounds on compiling a plugin that arrives at run time: `[plugins.compile]`.
    pub compile: CompileLimits,
    /// Traps within a minute for which a plugin is taken out of service; 0 for never. Default 5.
    pub quarantine_traps: u32,
}

impl Default for PluginSettings {
    fn default() -> Self {
        Self {
            limits: GuestLimits::default(),
            compile: CompileLimits::default(),
            quarantine_traps: 5,
        }
    }
}

impl PluginSettings {
    /// What is wrong with the settings, beyond what types can say; each sentence names the setting.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let memory_bytes = self.limits.memory_bytes.get();
        if memory_bytes > MAX_MEMORY_BYTES {
            problems.push(format!(
                "`plugins.limits.memory_bytes` is {memory_bytes}; a plugin can have {MAX_MEMORY_BYTES} at most"
            ));
        }
        problems
    }
}
