//! The address of a listener, as settings and the command line name it.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::Context;
use serde::Deserialize;
use tokio::net::TcpListener;

/// The address to listen on: an address or a name, and a port, e.g. `127.0.0.1:8080` or `localhost:8080`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ListenAddress(String);

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

/// Returns the address at which this machine itself reaches a listener.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address {
        _ if !address.ip().is_unspecified() => address.ip(),
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}
