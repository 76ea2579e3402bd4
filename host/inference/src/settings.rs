//! The limits of one exchange with an upstream: a part of `[limits]`.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;

/// Limits of one exchange with an upstream.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExchangeLimits {
    /// Bytes of a provider's response. Default: 64 MiB.
    pub answer_bytes: NonZeroU64,
    /// Milliseconds for which weir reads a stream after its client disconnected, to receive the token counts. Other
    /// responses are read to their end, within `total_ms`. Default: 10,000.
    pub hang_up_drain_ms: u64,
    /// Milliseconds between two reads of a fast stream; 0 reads each piece at once. Default: 5.
    pub stream_flush_ms: u64,
}

impl Default for ExchangeLimits {
    fn default() -> Self {
        Self {
            answer_bytes: NonZeroU64::new(64 << 20).expect("not zero"),
            hang_up_drain_ms: 10_000,
            stream_flush_ms: 5,
        }
    }
}

impl ExchangeLimits {
    /// `hang_up_drain_ms`.
    pub fn hang_up_drain(&self) -> Duration {
        Duration::from_millis(self.hang_up_drain_ms)
    }

    /// `stream_flush_ms`.
    pub fn stream_flush(&self) -> Duration {
        Duration::from_millis(self.stream_flush_ms)
    }
}
