//! The PROXY protocol header, version 1 or 2, with which a TCP proxy names its client's address
//! (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>).
//!
//! The parser is strict: an almost valid header is an error. It skips TLVs.
//!
//! The crate `ppp` (2.3) does not fit: it rejects a version 1 header if a read ends just before the last port, rejects a
//! `LOCAL` header with an unknown family, asks for more bytes after some complete invalid lines, and limits no version 2
//! header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const V1: &[u8] = b"PROXY ";
const V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of the longest line of version 1.
const V1_BYTES: usize = 107;

/// Maximum bytes of a version 2 header; the TLVs of existing proxies need a few hundred.
const V2_BYTES: usize = 4 << 10;

/// A complete header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProxyHeader {
    /// The header's bytes; the client's bytes follow.
    pub length: usize,
    /// The client's address; none if the proxy connects for itself, as for health checks, or does not know the client.
    pub client: Option<IpAddr>,
}

/// The bytes are not a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidProxyHeader;

impl ProxyHeader {
    /// Parses the start of a connection. `None` if more bytes are needed.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Self>, InvalidProxyHeader> {
        if begins(bytes, V2) {
            return read_v2(bytes);
        }
        if begins(bytes, V1) {
            return read_v1(bytes);
        }
        Err(InvalidProxyHeader)
    }
}

/// Returns whether `bytes` begins with `with`, as far as the bytes have arrived.
fn begins(bytes: &[u8], with: &[u8]) -> bool {
    let length = bytes.len().min(with.len());
    bytes[..length] == with[..length]
}

fn read_v1(bytes: &[u8]) -> Result<Option<ProxyHeader>, InvalidProxyHeader> {
    let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(V1_BYTES)]) else {
        return match bytes.len() < V1_BYTES {
            true => Ok(None),
            false => Err(InvalidProxyHeader),
        };
    };
    let line = str::from_utf8(&bytes[..end]).map_err(|_| InvalidProxyHeader)?;
    let line = line.strip_suffix('\r').ok_or(InvalidProxyHeader)?;
    let fields: Vec<_> = line.split(' ').collect();
    let client = match fields[..] {
        ["PROXY", "UNKNOWN", ..] => None,
        ["PROXY", "TCP4", from, to, from_port, to_port] if are_ports([from_port, to_port]) => {
            let addresses = (from.parse::<Ipv4Addr>(), to.parse::<Ipv4Addr>());
            let (Ok(from), Ok(_)) = addresses else {
                return Err(InvalidProxyHeader);
            };
            Some(IpAddr::from(from))
        }
        ["PROXY", "TCP6", from, to, from_port, to_port] if are_ports([from_port, to_port]) => {
            let addresses = (from.parse::<Ipv6Addr>(), to.parse::<Ipv6Addr>());
            let (Ok(from), Ok(_)) = addresses else {
                return Err(InvalidProxyHeader);
            };
            Some(IpAddr::from(from))
        }
        _ => return Err(InvalidProxyHeader),
    };
    Ok(Some(ProxyHeader {
        length: end + 1,
        client,
    }))
}

/// Returns whether the fields are ports in the protocol's format: digits without a leading zero.
fn are_ports(fields: [&str; 2]) -> bool {
    fields.iter().all(|field| {
        field
            .parse::<u16>()
            .is_ok_and(|port| port.to_string() == *field)
    })
}

fn read_v2(bytes: &[u8]) -> Result<Option<ProxyHeader>, InvalidProxyHeader> {
    let Some((head, rest)) = bytes.split_at_checked(V2.len() + 4) else {
        return Ok(None);
    };
    let [command, family, high, low] = [12, 13, 14, 15].map(|at| head[at]);
    let length = usize::from(u16::from_be_bytes([high, low]));
    if head.len() + length > V2_BYTES {
        return Err(InvalidProxyHeader);
    }
    let Some(rest) = rest.get(..length) else {
        return Ok(None);
    };
    let client = match (command, family) {
        // A connection of the proxy itself, without an address family, or of Unix sockets.
        (0x20, _) | (0x21, 0x00 | 0x31) => None,
        (0x21, 0x11) if length >= 12 => {
            let [a, b, c, d] = [0, 1, 2, 3].map(|at| rest[at]);
            Some(IpAddr::from([a, b, c, d]))
        }
        (0x21, 0x21) if length >= 36 => {
            let address = rest.first_chunk::<16>().ok_or(InvalidProxyHeader)?;
            Some(IpAddr::from(*address))
        }
        _ => return Err(InvalidProxyHeader),
    };
    Ok(Some(ProxyHeader {
        length: head.len() + length,
        client,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("short");
        [V2, &[command, family][..], &length.to_be_bytes(), rest].concat()
    }

    /// Parses a header, and asserts that every prefix of the bytes gives the same result or `None`.
    fn read(bytes: &[u8]) -> Result<Option<ProxyHeader>, InvalidProxyHeader> {
        let read = ProxyHeader::read(bytes);
        if let Ok(Some(header)) = &read {
            for come in 0..header.length {
                assert_eq!(ProxyHeader::read(&bytes[..come]), Ok(None), "{come}");
            }
        }
        read
    }

    fn client_of(bytes: &[u8]) -> Option<IpAddr> {
        let header = read(bytes).expect("a header").expect("all of it");
        assert_eq!(&bytes[header.length..], b"GET ", "{bytes:?}");
        header.client
    }

    #[test]
    fn both_versions_say_who_the_client_is() {
        let from: [u8; 4] = [198, 51, 100, 7];
        let v4 = Some(IpAddr::from(from));
        let v6: Ipv6Addr = "2001:db8::7".parse().expect("an address");
        for (line, client) in [
            ("PROXY TCP4 198.51.100.7 10.0.0.1 65535 443", v4),
            ("PROXY TCP6 2001:db8::7 ::1 1 443", Some(v6.into())),
            ("PROXY UNKNOWN", None),
            ("PROXY UNKNOWN ffff::1 ffff::2 1 2", None),
        ] {
            assert_eq!(
                client_of(format!("{line}\r\nGET ").as_bytes()),
                client,
                "{line}"
            );
        }
        let tcp4 = [&from[..], &[10, 0, 0, 1, 200, 0, 1, 187]].concat();
        let tcp6 = [&v6.octets()[..], &[0; 16], &[200, 0, 1, 187]].concat();
        let with_tlv = [&tcp4[..], &[0x04, 0, 1, 0]].concat();
        for (command, family, rest, client) in [
            (0x21, 0x11, &tcp4[..], v4),
            (0x21, 0x11, &with_tlv, v4),
            (0x21, 0x21, &tcp6, Some(v6.into())),
            (0x20, 0x11, &tcp4, None),
            (0x20, 0x00, &[], None),
            (0x21, 0x00, &[1, 2], None),
            (0x21, 0x31, &[0; 216], None),
        ] {
            let bytes = [&v2(command, family, rest)[..], b"GET "].concat();
            assert_eq!(client_of(&bytes), client, "{command:x} {family:x}");
        }
    }

    #[test]
    fn what_only_nearly_is_a_header_is_none() {
        for line in [
            "GET / HTTP/1.1",
            "PROXY",
            "PROXY TCP4 198.51.100.7 10.0.0.1 1",
            "PROXY TCP4 198.51.100.7 10.0.0.1 1 2 3",
            "PROXY TCP4 198.51.100.7  10.0.0.1 1 2",
            "PROXY TCP4 198.51.100.007 10.0.0.1 1 2",
            "PROXY TCP4 2001:db8::7 ::1 1 2",
            "PROXY TCP6 198.51.100.7 10.0.0.1 1 2",
            "PROXY TCP4 198.51.100.7 10.0.0.1 01 2",
            "PROXY TCP4 198.51.100.7 10.0.0.1 +1 2",
            "PROXY TCP4 198.51.100.7 10.0.0.1 65536 2",
            "PROXY tcp4 198.51.100.7 10.0.0.1 1 2",
            "PROXY UDP4 198.51.100.7 10.0.0.1 1 2",
            "proxy TCP4 198.51.100.7 10.0.0.1 1 2",
        ] {
            let text = format!("{line}\r\n");
            assert_eq!(read(text.as_bytes()), Err(InvalidProxyHeader), "{line}");
        }
        assert_eq!(
            read(b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n"),
            Err(InvalidProxyHeader)
        );
        assert_eq!(
            read(format!("PROXY UNKNOWN {}\r\n", "x".repeat(107)).as_bytes()),
            Err(InvalidProxyHeader)
        );
        for (command, family, length) in [
            (0x11, 0x11, 12),
            (0x22, 0x11, 12),
            (0x21, 0x11, 11),
            (0x21, 0x21, 35),
            (0x21, 0x12, 12),
            (0x21, 0x22, 36),
            (0x21, 0x41, 12),
            (0x21, 0x11, 5_000),
        ] {
            let bytes = v2(command, family, &vec![0; length]);
            assert_eq!(
                read(&bytes),
                Err(InvalidProxyHeader),
                "{command:x} {family:x} {length}"
            );
        }
    }
}
