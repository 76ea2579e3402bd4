//! Limits of clients' connections: a part of `[limits]`.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use serde::Deserialize;

/// Limits of connections.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionLimits {
    /// Client connections; a further one replaces an idle one or waits. Default: 4,096.
    pub connections: NonZeroU32,
    /// Client connections of an address, or an IPv6 /64 network; trusted proxies are exempt. Default: 1,024.
    pub connections_per_address: NonZeroU32,
    /// Concurrent requests of an HTTP/2 connection; each after the first counts as a connection. Default: 100.
    pub streams_per_connection: NonZeroU32,
    /// Milliseconds for the PROXY header and TLS handshake of a connection, and for the headers of a request. Default:
    /// 10,000.
    pub head_timeout_ms: NonZeroU64,
    /// Milliseconds until an idle connection is closed; a load balancer must close its own earlier. Default: 75,000.
    pub idle_timeout_ms: NonZeroU64,
    /// Milliseconds after which a connection takes no further request, so that clients spread over new nodes. Default:
    /// 3,600,000.
    pub connection_age_ms: NonZeroU64,
    /// Milliseconds in which a client must read 64 KiB of a response, or all that is available. Default: 30,000.
    pub client_write_timeout_ms: NonZeroU64,
    /// Milliseconds for which a stopping gateway still accepts requests, while readiness already fails. Default: 5,000;
    /// 0 in development mode.
    pub drain_delay_ms: Option<u64>,
    /// Milliseconds that a stopping gateway then gives running requests. Default: 30,000.
    pub shutdown_ms: u64,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: NonZeroU32::new(4_096).expect("not zero"),
            connections_per_address: NonZeroU32::new(1_024).expect("not zero"),
            streams_per_connection: NonZeroU32::new(100).expect("not zero"),
            head_timeout_ms: NonZeroU64::new(10_000).expect("not zero"),
            idle_timeout_ms: NonZeroU64::new(75_000).expect("not zero"),
            connection_age_ms: NonZeroU64::new(3_600_000).expect("not zero"),
            client_write_timeout_ms: NonZeroU64::new(30_000).expect("not zero"),
            drain_delay_ms: None,
            shutdown_ms: 30_000,
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
