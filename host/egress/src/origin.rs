//! The origin of a server: its scheme, host and port.

use std::net::IpAddr;
use std::str::FromStr;

use url::{Host, Url};

/// Scheme, host and port: the scope of a credential, and the boundary for redirects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlOrigin {
    pub(crate) is_https: bool,
    pub(crate) host: Address,
    pub(crate) port: u16,
}

/// A host, as [`url`] normalises it: a lower-case name in IDNA's encoding, without the trailing dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Name(String),
    Ip(IpAddr),
}

impl Address {
    /// Reads the host part of a URL.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Host::parse(text).ok().map(Self::from)
    }
}

impl From<Host<String>> for Address {
    fn from(host: Host<String>) -> Self {
        match host {
            Host::Ipv4(address) => Self::Ip(address.into()),
            Host::Ipv6(address) => Self::Ip(address.into()),
            Host::Domain(name) => Self::Name(match name.strip_suffix('.') {
                Some(without) => without.to_owned(),
                None => name,
            }),
        }
    }
}

impl FromStr for UrlOrigin {
    type Err = &'static str;

    /// Reads an operator's origin, e.g. `https://api.example.com`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text).map_err(|_| "is not a URL")?;
        let has_more = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
        if has_more || !url.username().is_empty() || url.password().is_some() {
            return Err("has more than scheme, host and port");
        }
        Self::of(&url).ok_or("begins with neither https:// nor http://")
    }
}

impl UrlOrigin {
    pub(crate) fn of(url: &Url) -> Option<Self> {
        let is_https = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        Some(Self {
            is_https,
            host: url.host()?.to_owned().into(),
            port: url.port_or_known_default()?,
        })
    }

    /// The value of the `host` header.
    pub(crate) fn authority(&self) -> String {
        let host = match &self.host {
            Address::Name(name) => name.clone(),
            Address::Ip(IpAddr::V4(address)) => address.to_string(),
            Address::Ip(IpAddr::V6(address)) => format!("[{address}]"),
        };
        let default_port = if self.is_https { 443 } else { 80 };
        match self.port == default_port {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }
}
