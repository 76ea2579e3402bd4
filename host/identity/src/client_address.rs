//! The client's address of a request, behind trusted proxies.
//!
//! weir reads `X-Forwarded-For` from the right: each trusted proxy vouches for the hop before it, and the first hop
//! that is not a trusted proxy is the client. Entries to its left are untrusted, because the client wrote them.
//!
//! **Invariant:** a peer that is not a trusted proxy is the client, regardless of its headers.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use http::HeaderMap;
use ipnet::IpNet;

/// The unit of limits by address: an IPv4 address, or the /64 network of an IPv6 client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress(IpAddr);

impl ClientAddress {
    /// Returns the client's address of a request.
    pub fn of(peer: IpAddr, headers: &HeaderMap, trusted_proxies: &[IpNet]) -> Self {
        let trusted = |ip: IpAddr| trusted_proxies.iter().any(|net| net.contains(&ip));
        let peer = peer.to_canonical();
        if !trusted(peer) {
            return Self::new(peer);
        }
        let mut client = peer;
        let lines: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
        for line in lines.iter().rev() {
            // The header is read as bytes, since its left part may hold anything.
            for hop in line.as_bytes().rsplit(|&byte| byte == b',') {
                // An invalid address ends the chain: the proxy that wrote it is the last known hop.
                let hop = str::from_utf8(hop)
                    .ok()
                    .and_then(|hop| parse_hop(hop.trim()));
                let Some(hop) = hop else {
                    return Self::new(client);
                };
                client = hop;
                if !trusted(hop) {
                    return Self::new(client);
                }
            }
        }
        Self::new(client)
    }

    /// Returns the client with this address, e.g. from an operator's command.
    pub fn new(ip: IpAddr) -> Self {
        Self(match ip.to_canonical() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            ip => ip,
        })
    }

    /// Whether the client is this machine.
    pub fn is_loopback(&self) -> bool {
        // For IPv6, only the network is stored.
        match self.0 {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_unspecified(),
        }
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Parses an address as proxies write it: bare, with a port, or in brackets.
fn parse_hop(hop: &str) -> Option<IpAddr> {
    if let Ok(ip) = hop.parse::<IpAddr>() {
        return Some(ip.to_canonical());
    }
    if let Ok(socket) = hop.parse::<std::net::SocketAddr>() {
        return Some(socket.ip().to_canonical());
    }
    let bare = hop.strip_prefix('[')?.strip_suffix(']')?;
    bare.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// The name under which failures and rates count: the address, or one shared name if it is unknown.
pub(super) fn bucket(address: Option<ClientAddress>) -> String {
    address.map_or_else(|| "unknown".to_owned(), |address| address.to_string())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: &[&str]) -> String {
        let proxies = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let mut headers = HeaderMap::new();
        for line in forwarded {
            let line = http::HeaderValue::from_bytes(line.as_bytes()).unwrap();
            headers.append("x-forwarded-for", line);
        }
        ClientAddress::of(peer.parse().unwrap(), &headers, &proxies).to_string()
    }

    #[test]
    fn the_rightmost_hop_that_is_no_trusted_proxy_is_the_client() {
        for (peer, forwarded, want) in [
            ("203.0.113.7", &[][..], "203.0.113.7"),
            ("203.0.113.7", &["198.51.100.1"], "203.0.113.7"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            (
                "10.0.0.1",
                &["1.2.3.4, 198.51.100.1, 10.0.0.2"],
                "198.51.100.1",
            ),
            ("10.0.0.1", &["1.2.3.4", "198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["\u{e9}, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["10.0.0.3"], "10.0.0.3"),
            ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("fd00::1", &["2001:db8:1:2:3:4:5:6"], "2001:db8:1:2::"),
            ("fd00::1", &["[2001:db8:1:2:3::]:443"], "2001:db8:1:2::"),
            ("2001:db8::1", &[], "2001:db8::"),
        ] {
            assert_eq!(client(peer, forwarded), want, "{peer} {forwarded:?}");
        }
    }
}
