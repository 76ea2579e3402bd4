//! The lifetime of sessions: `[sessions]`.

use std::num::NonZeroU32;

use serde::Deserialize;

/// Lifetime of sessions: `[sessions]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionSettings {
    /// Minutes from a session's last turn until it expires. Default: 60.
    pub ttl_minutes: NonZeroU32,
    /// Minutes for which a response can be continued by its id. Default: 60.
    pub response_ttl_minutes: NonZeroU32,
}

impl Default for SessionSettings {
    fn default() -> Self {
        let hour = NonZeroU32::new(60).expect("not zero");
        Self {
            ttl_minutes: hour,
            response_ttl_minutes: hour,
        }
    }
}

impl SessionSettings {
    /// The lifetime in milliseconds.
    pub(super) fn ttl_ms(&self) -> i64 {
        i64::from(self.ttl_minutes.get()) * 60_000
    }

    /// The time for which a response can be continued, in milliseconds.
    pub(super) fn response_ttl_ms(&self) -> i64 {
        i64::from(self.response_ttl_minutes.get()) * 60_000
    }
}
