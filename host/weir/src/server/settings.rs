//! What clients' connections and requests' bodies may take: a part of `[limits]`.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::Duration;

use serde::Deserialize;

/// Bounds on connections.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionLimits {
    /// Connections of clients at once; one more takes the place of an idle one, or waits to be accepted. Default 4,096.
    pub connections: NonZeroU32,
    /// Of these, those from one address, or from one /64 of IPv6; the same, but that one too many with a request under way on
    /// each is refused. Trusted proxies may have all. Default 1,024.
    pub connections_per_address: NonZeroU32,
    /// Milliseconds in which the head of a request must arrive. Default 10,000.
    pub head_timeout_ms: NonZeroU64,
    /// Milliseconds for which a connection is kept between requests: a load balancer in front should close its own idle
    /// connections sooner. Default 75,000.
    pub idle_timeout_ms: NonZeroU64,
    /// Milliseconds after which a connection takes no further request, so that clients spread over nodes again. Default an
    /// hour.
    pub connection_age_ms: NonZeroU64,
    /// Milliseconds that a client may leave a streamed answer unread before weir takes it for gone.
    /// Default 30,000.
    pub client_write_timeout_ms: NonZeroU64,
    /// Milliseconds that a gateway goes on accepting after it was told to stop, while its readiness already fails, so
    /// that load balancers can take note. Default 5,000; in development mode none.
    pub drain_delay_ms: Option<u64>,
    /// Milliseconds that a stopping gateway then gives to requests under way. Default 30,000.
    pub shutdown_ms: u64,
}

/// Bounds on one request's body.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BodyLimits {
    /// Bytes of a request's body. Default 10 MiB.
    pub body_bytes: NonZeroUsize,
    /// Milliseconds in which a request's body must arrive. Default 30,000.
    pub body_timeout_ms: NonZeroU64,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: NonZeroU32::new(4_096).expect("not zero"),
            connections_per_address: NonZeroU32::new(1_024).expect("not zero"),
            head_timeout_ms: NonZeroU64::new(10_000).expect("not zero"),
            idle_timeout_ms: NonZeroU64::new(75_000).expect("not zero"),
            connection_age_ms: NonZeroU64::new(3_600_000).expect("not zero"),
            client_write_timeout_ms: NonZeroU64::new(30_000).expect("not zero"),
            drain_delay_ms: None,
            shutdown_ms: 30_000,
        }
    }
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            body_bytes: NonZeroUsize::new(10 << 20).expect("not zero"),
            body_timeout_ms: NonZeroU64::new(30_000).expect("not zero"),
        }
    }
}

impl ConnectionLimits {
    /// `head_timeout_ms`.
    pub fn head_timeout(&self) -> Duration {
        Duration::from_millis(self.head_timeout_ms.get())
    }

    /// `idle_timeout_ms`.
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms.get())
    }

    /// `connection_age_ms`.
    pub fn connection_age(&self) -> Duration {
        Duration::from_millis(self.connection_age_ms.get())
    }

    /// `client_write_timeout_ms`.
    pub fn client_write_timeout(&self) -> Duration {
        Duration::from_millis(self.client_write_timeout_ms.get())
    }
}

impl BodyLimits {
    /// `body_timeout_ms`.
    pub fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.body_timeout_ms.get())
    }
}
