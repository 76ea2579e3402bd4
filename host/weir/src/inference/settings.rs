//! How long upstreams may take (`[timeouts]`), and what one exchange may (a part of `[limits]`).

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;

/// How long upstreams may take: `[timeouts]`. A provider may override `first_byte_ms`, `first_token_ms` and
/// `idle_ms`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutSettings {
    /// Milliseconds to connect, name look-up and TLS included. Default 5,000.
    pub connect_ms: NonZeroU64,
    /// Milliseconds from the request to the head of a streamed answer. An answer that is not
    /// streamed begins when it is complete, so that only the total bounds it. Default 120,000.
    pub first_byte_ms: NonZeroU64,
    /// Milliseconds from the request to the first of a streamed answer, reasoning included, after which the model's next
    /// upstream is asked instead; the last one is waited for. Default 60,000.
    pub first_token_ms: NonZeroU64,
    /// Milliseconds between two pieces of an answer. Default 300,000: models think for minutes.
    pub idle_ms: NonZeroU64,
    /// Milliseconds for the whole request, retries and fallbacks included. Default 600,000.
    pub total_ms: NonZeroU64,
}

/// Bounds on one exchange with an upstream.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExchangeLimits {
    /// Bytes of one upstream answer. Default 64 MiB.
    pub answer_bytes: NonZeroU64,
    /// Milliseconds that work goes on after a client hung up, so that the upstream's count of
    /// tokens can still arrive. Default 10,000.
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
