//! The time limits of upstreams (`[timeouts]`), and the limits of request bodies (a part of `[limits]`).

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use serde::Deserialize;

/// How long upstreams may take: `[timeouts]`. Providers and models may override `first_byte_ms`, `first_token_ms` and
/// `idle_ms`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutSettings {
    /// Milliseconds to connect, including DNS and TLS. Default: 5,000.
    pub connect_ms: NonZeroU64,
    /// Milliseconds until the headers of a streamed response; without a stream, until the first byte of the content, after
    /// which weir tries the model's next provider, if there is one. Default: 120,000.
    pub first_byte_ms: NonZeroU64,
    /// Milliseconds until a stream's first token, after which weir tries the model's next provider, if there is one.
    /// Default: 60,000.
    pub first_token_ms: NonZeroU64,
    /// Milliseconds between two pieces of a response. Default: 300,000.
    pub idle_ms: NonZeroU64,
    /// Milliseconds for a request with its retries and fallbacks. Default: 600,000.
    pub total_ms: NonZeroU64,
}

/// The rate of a body that may take longer than `body_timeout_ms`: a client with a slow uplink sends images at this rate.
const SLOW_BYTES_PER_SECOND: u64 = 512 << 10;

/// Limits of one request's body.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BodyLimits {
    /// Bytes of a request body. Default: 32 MiB.
    pub body_bytes: NonZeroUsize,
    /// Milliseconds in which a request body must arrive, besides a second for each 512 KiB of it. Default: 30,000.
    pub body_timeout_ms: NonZeroU64,
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

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            body_bytes: NonZeroUsize::new(32 << 20).expect("not zero"),
            body_timeout_ms: NonZeroU64::new(30_000).expect("not zero"),
        }
    }
}

impl BodyLimits {
    /// The time for a body when these bytes have arrived: `body_timeout_ms`, and the time that these bytes take at the
    /// slow rate. A client that keeps this rate is never late, and a client that drips is late after `body_timeout_ms`.
    pub fn body_timeout(&self, received_bytes: usize) -> Duration {
        let received = received_bytes as u64;
        let received_ms = received.saturating_mul(1_000) / SLOW_BYTES_PER_SECOND;
        Duration::from_millis(self.body_timeout_ms.get().saturating_add(received_ms))
    }
}
