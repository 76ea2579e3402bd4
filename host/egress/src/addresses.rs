//! Public addresses: all addresses outside of IANA's special-purpose registries; for IPv6, only global unicast.
//!
//! The guard also blocks entries that the registries call globally reachable: they are relays and sinks, which no tool
//! needs.
//!
//! To add an entry, keep the order of its registry; a more specific entry may follow the block that covers it.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::LazyLock;

use ipnet::IpNet;

/// A block of addresses that are not public, as its registry lists it.
#[derive(Debug, PartialEq, Eq)]
pub struct SpecialBlock {
    block: &'static str,
    /// The entry's name in the registry.
    pub name: &'static str,
    /// The defining document.
    pub source: &'static str,
}

const fn special(block: &'static str, name: &'static str, source: &'static str) -> SpecialBlock {
    SpecialBlock {
        block,
        name,
        source,
    }
}

/// The [IANA IPv4 Special-Purpose Address Registry](https://www.iana.org/assignments/iana-ipv4-special-registry/),
/// followed by other blocks without public hosts.
static IPV4: [SpecialBlock; 28] = [
    special("0.0.0.0/8", "This network", "RFC 791"),
    special("0.0.0.0/32", "This host on this network", "RFC 1122"),
    special("10.0.0.0/8", "Private-Use", "RFC 1918"),
    special("100.64.0.0/10", "Shared Address Space", "RFC 6598"),
    special("127.0.0.0/8", "Loopback", "RFC 1122"),
    special("169.254.0.0/16", "Link Local", "RFC 3927"),
    special("172.16.0.0/12", "Private-Use", "RFC 1918"),
    special("192.0.0.0/24", "IETF Protocol Assignments", "RFC 6890"),
    special("192.0.0.0/29", "IPv4 Service Continuity Prefix", "RFC 7335"),
    special("192.0.0.8/32", "IPv4 dummy address", "RFC 7600"),
    special("192.0.0.9/32", "Port Control Protocol Anycast", "RFC 7723"),
    special(
        "192.0.0.10/32",
        "Traversal Using Relays around NAT Anycast",
        "RFC 8155",
    ),
    special("192.0.0.170/32", "NAT64/DNS64 Discovery", "RFC 8880"),
    special("192.0.0.171/32", "NAT64/DNS64 Discovery", "RFC 8880"),
    special("192.0.2.0/24", "Documentation (TEST-NET-1)", "RFC 5737"),
    special("192.31.196.0/24", "AS112-v4", "RFC 7535"),
    special("192.52.193.0/24", "AMT", "RFC 7450"),
    special(
        "192.88.99.0/24",
        "Deprecated (6to4 Relay Anycast)",
        "RFC 7526",
    ),
    special("192.88.99.2/32", "6a44-relay anycast address", "RFC 6751"),
    special("192.168.0.0/16", "Private-Use", "RFC 1918"),
    special(
        "192.175.48.0/24",
        "Direct Delegation AS112 Service",
        "RFC 7534",
    ),
    special("198.18.0.0/15", "Benchmarking", "RFC 2544"),
    special("198.51.100.0/24", "Documentation (TEST-NET-2)", "RFC 5737"),
    special("203.0.113.0/24", "Documentation (TEST-NET-3)", "RFC 5737"),
    special("240.0.0.0/4", "Reserved", "RFC 1112"),
    special("255.255.255.255/32", "Limited Broadcast", "RFC 919"),
    // From the registry of multicast addresses.
    special("224.0.0.0/4", "Multicast", "RFC 5771"),
    // This address is in no registry: it looks public, but reaches the host agent from any Azure virtual machine.
    special("168.63.129.16/32", "Azure's host agent", "Microsoft"),
];

/// The [IANA IPv6 Special-Purpose Address Registry](https://www.iana.org/assignments/iana-ipv6-special-registry/),
/// followed by former entries and other blocks without public hosts. Addresses outside of `2000::/3` are blocked
/// without an entry, too; an entry lets the refusal name the block.
static IPV6: [SpecialBlock; 29] = [
    special("::1/128", "Loopback Address", "RFC 4291"),
    special("::/128", "Unspecified Address", "RFC 4291"),
    special("::ffff:0:0/96", "IPv4-mapped Address", "RFC 4291"),
    special("64:ff9b::/96", "IPv4-IPv6 Translation", "RFC 6052"),
    special("64:ff9b:1::/48", "IPv4-IPv6 Translation", "RFC 8215"),
    special("100::/64", "Discard-Only Address Block", "RFC 6666"),
    special("100:0:0:1::/64", "Dummy IPv6 Prefix", "RFC 9780"),
    special("2001::/23", "IETF Protocol Assignments", "RFC 2928"),
    special("2001::/32", "TEREDO", "RFC 4380"),
    special("2001:1::1/128", "Port Control Protocol Anycast", "RFC 7723"),
    special(
        "2001:1::2/128",
        "Traversal Using Relays around NAT Anycast",
        "RFC 8155",
    ),
    special("2001:1::3/128", "DNS-SD SRP Anycast", "RFC 9665"),
    special("2001:2::/48", "Benchmarking", "RFC 5180"),
    special("2001:3::/32", "AMT", "RFC 7450"),
    special("2001:4:112::/48", "AS112-v6", "RFC 7535"),
    special("2001:10::/28", "Deprecated (ORCHID)", "RFC 4843"),
    special("2001:20::/28", "ORCHIDv2", "RFC 7343"),
    special(
        "2001:30::/28",
        "Drone Remote ID Protocol Entity Tags",
        "RFC 9374",
    ),
    special("2001:db8::/32", "Documentation", "RFC 3849"),
    special("2002::/16", "6to4", "RFC 3056"),
    special(
        "2620:4f:8000::/48",
        "Direct Delegation AS112 Service",
        "RFC 7534",
    ),
    special("3fff::/20", "Documentation", "RFC 9637"),
    special("5f00::/16", "Segment Routing (SRv6) SIDs", "RFC 9602"),
    special("fc00::/7", "Unique-Local", "RFC 4193"),
    special("fe80::/10", "Link-Local Unicast", "RFC 4291"),
    // Deprecated addresses, and multicast.
    special("::/96", "Deprecated (IPv4-compatible)", "RFC 4291"),
    special("3ffe::/16", "Returned (6bone)", "RFC 3701"),
    special("fec0::/10", "Deprecated (site-local)", "RFC 3879"),
    special("ff00::/8", "Multicast", "RFC 4291"),
];

/// IANA assigns Internet hosts only from global unicast and reserves all other blocks.
static NOT_GLOBAL_UNICAST: SpecialBlock = special("::/0", "not global unicast", "RFC 4291");

/// ISATAP addresses exist below any prefix: the receiving network decides.
static ISATAP: SpecialBlock = special("::/0", "ISATAP, which embeds an IPv4 address", "RFC 5214");

static BLOCKS: LazyLock<Vec<(IpNet, &'static SpecialBlock)>> = LazyLock::new(|| {
    let all = IPV4.iter().chain(&IPV6);
    let read = |special: &'static SpecialBlock| {
        let block = special.block.parse();
        block.map(|block| (block, special)).unwrap_or_else(|_| {
            unreachable!("{} is a block, as its unit test shows", special.block)
        })
    };
    all.map(read).collect()
});

/// The block that makes an address non-public; `None` if the address is public.
pub fn special_purpose(address: IpAddr) -> Option<&'static SpecialBlock> {
    let covering = BLOCKS.iter().filter(|(block, _)| block.contains(&address));
    let narrowest = covering.max_by_key(|(block, _)| block.prefix_len());
    if let Some((_, special)) = narrowest {
        return Some(special);
    }
    match address {
        IpAddr::V6(address) if address.segments()[0] >> 13 != 1 => Some(&NOT_GLOBAL_UNICAST),
        IpAddr::V6(address) if is_isatap(address) => Some(&ISATAP),
        _ => None,
    }
}

/// Whether the lower half is `0000:5efe` or `0200:5efe`, and then an IPv4 address.
fn is_isatap(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    segments[4] & !0x0200 == 0 && segments[5] == 0x5efe
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn name_of(address: &str) -> Option<&'static str> {
        special_purpose(address.parse().unwrap()).map(|special| special.name)
    }

    #[test]
    fn every_entry_is_a_block_that_refuses_its_first_and_its_last_address() {
        for special in IPV4.iter().chain(&IPV6) {
            let block: IpNet = special.block.parse().unwrap();
            assert_eq!(block, block.trunc(), "{}", special.block);
            for address in [block.network(), block.broadcast()] {
                assert!(special_purpose(address).is_some(), "{address}");
            }
        }
    }

    #[test]
    fn a_refusal_names_the_narrowest_entry() {
        assert_eq!(name_of("192.0.0.170"), Some("NAT64/DNS64 Discovery"));
        assert_eq!(name_of("192.0.0.1"), Some("IPv4 Service Continuity Prefix"));
        assert_eq!(name_of("192.0.0.200"), Some("IETF Protocol Assignments"));
        assert_eq!(name_of("2001:0:1::"), Some("TEREDO"));
        assert_eq!(name_of("::"), Some("Unspecified Address"));
        assert_eq!(name_of("::7f00:1"), Some("Deprecated (IPv4-compatible)"));
        assert_eq!(name_of("4000::1"), Some("not global unicast"));
    }

    #[test]
    fn neighbours_of_special_blocks_are_public() {
        for address in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "172.32.0.0",
            "192.0.1.255",
            "192.0.3.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::",
            "2001:db7:ffff::1",
            "2001:db9::",
            "2003::",
            "3ffd::1",
            "3fff:1000::",
            "2606:4700::1111",
        ] {
            assert_eq!(name_of(address), None, "{address}");
        }
    }

    #[test]
    fn an_embedded_private_address_is_refused_below_a_public_prefix() {
        assert!(name_of("2606:4700::5efe:127.0.0.1").is_some());
        assert!(name_of("2606:4700::200:5efe:10.0.0.1").is_some());
        assert!(name_of("2606:4700::100:5efe:10.0.0.1").is_none());
    }
}
