//! Timeouts of upstreams (`[timeouts]`), and limits of one exchange (a part of `[limits]`).

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;

/// Timeouts of upstreams: `[timeouts]`. A provider may override `first_byte_ms`, `first_token_ms` and `idle_ms`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutSettings {
    /// Milliseconds to connect, including DNS and TLS. Default: 5,000.
    pub connect_ms: NonZeroU64,
    /// Milliseconds until the headers of a streamed response. Default: 120,000.
    pub first_byte_ms: NonZeroU64,
    /// Milliseconds until a stream's first token, after which weir tries the model's next provider, if there is one.
    /// Default: 60,000.
    pub first_token_ms: NonZeroU64,
    /// Milliseconds between two pieces of a response. Default: 300,000.
    pub idle_ms: NonZeroU64,
    /// Milliseconds for a request with its retries and fallbacks. Default: 600,000.
    pub total_ms: NonZeroU64,
}

/// Limits of one exchange with an upstream.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExchangeLimits {
    /// Bytes of a provider's response. Default: 64 MiB.
    pub answer_bytes: NonZeroU64,
    /// Milliseconds for which weir reads a response after its client disconnected, to receive the token counts.
    /// Default: 10,000.
    pub hang_up_drain_ms: u64,
}

impl Default for TimeoutSettings {
    fn default() -> Self {
        let ms = |ms| NonZeroU64::new(ms).expect("not zero");
        Self {
            connect_ms: ms(5_000),
            first_byte_ms: ms(120_000),
            first_token_ms: ms(60_000),
            idle_ms: ms(300_000),
            total_ms: ms(600_000),
        }
    }
}

impl Default for ExchangeLimits {
    fn default() -> Self {
        Self {
            answer_bytes: NonZeroU64::new(64 << 20).expect("not zero"),
            hang_up_drain_ms: 10_000,
        }
    }
}

impl TimeoutSettings {
    /// `connect_ms`.
    pub fn connect(&self) -> Duration {
        Duration::from_millis(self.connect_ms.get())
    }

    /// `total_ms`.
    pub fn total(&self) -> Duration {
        Duration::from_millis(self.total_ms.get())
    }
}

impl ExchangeLimits {
    /// `hang_up_drain_ms`.
    pub fn hang_up_drain(&self) -> Duration {
        Duration::from_millis(self.hang_up_drain_ms)
    }
}
