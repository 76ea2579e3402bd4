//! Limits of clients' connections and of request bodies: a part of `[limits]`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use tokio::net::TcpListener;

/// The address to listen on: an address or a name, and a port, e.g. `127.0.0.1:8080` or `localhost:8080`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ListenAddress(String);

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

/// Limits of one request's body.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BodyLimits {
    /// Bytes of a request body. Default: 10 MiB.
    pub body_bytes: NonZeroUsize,
    /// Milliseconds in which a request body must arrive. Default: 30,000.
    pub body_timeout_ms: NonZeroU64,
}

impl ListenAddress {
    /// Resolves the name; an IP address needs no resolution.
    pub fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        Ok(self.0.to_socket_addrs()?.collect())
    }

    /// Listens on the first address that is available; the error names each address that failed.
    pub async fn bind(&self) -> anyhow::Result<TcpListener> {
        TcpListener::bind(&*self.0)
            .await
            .with_context(|| format!("cannot listen on {self}"))
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self(address.to_string())
    }
}

impl FromStr for ListenAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |host: &str| {
            !host.is_empty()
                && host
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        let is_named = text
            .rsplit_once(':')
            .is_some_and(|(host, port)| is_name(host) && port.parse::<u16>().is_ok());
        match is_named || text.parse::<SocketAddr>().is_ok() {
            true => Ok(Self(text.to_owned())),
            false => Err(
                "the value must be an address or a name, and a port: 127.0.0.1:8080, [::1]:8080, localhost:8080",
            ),
        }
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
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
