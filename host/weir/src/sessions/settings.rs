//! The lifetime of sessions: `[sessions]`.

use std::num::NonZeroU32;

use serde::Deserialize;

/// Lifetime of sessions: `[sessions]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionSettings {
    /// Minutes from a session's last turn until it expires. Default: 60.
    pub ttl_minutes: NonZeroU32,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            ttl_minutes: NonZeroU32::new(60).expect("not zero"),
        }
    }
}

impl SessionSettings {
    /// The lifetime in milliseconds.
    pub(super) fn ttl_ms(&self) -> i64 {
        i64::from(self.ttl_minutes.get()) * 60_000
    }
}
