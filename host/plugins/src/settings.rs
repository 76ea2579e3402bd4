//! The settings of plugins, their limits and their quarantine: `[plugins]`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Deserialize;
use weir_sandbox::GuestLimits;
use weir_sandbox::compiler::CompileLimits;
use weir_sandbox::limits::MAX_MEMORY_BYTES;

use super::signature::PublisherKey;
use super::slot_name::{SLOT_NAMES, is_slot_name};

/// Bounds on plugins: `[plugins]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PluginSettings {
    /// Bounds on every plugin's exchanges: `[plugins.limits]`.
    pub limits: GuestLimits,
    /// Bounds on compiling a plugin that arrives at run time: `[plugins.compile]`.
    pub compile: CompileLimits,
    /// MiB of all running plugin instances together; a request that finds none free within a second gets 503. Default:
    /// 2,048.
    pub all_memory_mib: NonZeroU32,
    /// Concurrent tool calls; more wait. Default: 64.
    pub tool_calls: NonZeroU32,
    /// Concurrent tool calls of an account; more wait, and at `/mcp` get 429. Default: a quarter of `tool_calls`.
    pub tool_calls_per_account: Option<NonZeroU32>,
    /// Traps within a minute, from at least two accounts, that quarantine a component; 0 turns quarantine off. Default:
    /// 5.
    pub quarantine_traps: u32,
    /// Publishers whose signed components are accepted, by name: `[plugins.publishers.NAME]`. Default: none.
    pub publishers: BTreeMap<String, PublisherSettings>,
    /// Whether components without a configured publisher's signature are accepted. Default: `true` in development mode
    /// only.
    pub allow_unsigned: Option<bool>,
}

/// A publisher: `[plugins.publishers.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublisherSettings {
    /// Public keys, as `weir plugin keygen` prints them. Required.
    pub keys: Vec<PublisherKey>,
    /// Slots that the publisher's components may fill. Required.
    pub slots: Vec<String>,
}

impl Default for PluginSettings {
    fn default() -> Self {
        Self {
            limits: GuestLimits::default(),
            compile: CompileLimits::default(),
            all_memory_mib: const { NonZeroU32::new(2_048).unwrap() },
            tool_calls: const { NonZeroU32::new(64).unwrap() },
            tool_calls_per_account: None,
            quarantine_traps: 5,
            publishers: BTreeMap::new(),
            allow_unsigned: None,
        }
    }
}

impl PluginSettings {
    /// Concurrent tool calls of one account.
    pub fn tool_calls_per_account(&self) -> u32 {
        let default = (self.tool_calls.get() / 4).max(1);
        self.tool_calls_per_account.map_or(default, NonZeroU32::get)
    }

    /// `all_memory_mib` in bytes.
    pub fn all_memory_bytes(&self) -> u64 {
        u64::from(self.all_memory_mib.get()) << 20
    }

    /// Returns faults of the settings beyond those of their types; each sentence names the setting.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let memory_bytes = self.limits.memory_bytes.get();
        if memory_bytes > MAX_MEMORY_BYTES {
            problems.push(format!(
                "`plugins.limits.memory_bytes` is {memory_bytes}; a plugin can have {MAX_MEMORY_BYTES} at most"
            ));
        }
        if memory_bytes > self.all_memory_bytes() {
            problems.push(format!(
                "`plugins.limits.memory_bytes` is {memory_bytes}; all plugins together may have {} MiB \
                 (`plugins.all_memory_mib`)",
                self.all_memory_mib
            ));
        }
        let mut owners = Vec::new();
        for (name, publisher) in &self.publishers {
            let setting = format!("plugins.publishers.{name}");
            for slot in publisher.slots.iter().filter(|slot| !is_slot_name(slot)) {
                problems.push(format!("`{setting}.slots` has {slot:?}: {SLOT_NAMES}"));
            }
            for key in &publisher.keys {
                match owners.iter().find(|(owned, _)| *owned == key) {
                    Some((_, owner)) => problems.push(format!(
                        "`{setting}.keys` has {key}, which is a key of {owner} already"
                    )),
                    None => owners.push((key, name)),
                }
            }
        }
        problems
    }
}
