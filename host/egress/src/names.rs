//! Rules for names of public hosts; they need no look-up.

/// Domains without public hosts, subdomains included. Resolvers answer many of them from a file, a search list or
/// multicast, so the guard does not even send the query.
const SPECIAL: [(&str, &str); 41] = [
    // The IANA special-use domain names.
    ("alt", "is not of the DNS (RFC 9476)"),
    ("arpa", "is infrastructure of the DNS (RFC 3172, RFC 8375)"),
    ("example", "is for documentation (RFC 6761)"),
    ("invalid", "is invalid (RFC 6761)"),
    ("local", "is of the local link (RFC 6762)"),
    ("localhost", "is loopback (RFC 6761)"),
    ("onion", "is not of the DNS (RFC 7686)"),
    ("test", "is for tests (RFC 6761)"),
    // Reserved or refused by ICANN, since private networks use them.
    ("corp", "is of a private network"),
    ("home", "is of a private network"),
    ("internal", "is of a private network"),
    ("mail", "is of a private network"),
    // Not delegated, but private networks use them (RFC 6762, appendix G).
    ("belkin", "is of a private network"),
    ("dlink", "is of a private network"),
    ("domain", "is of a private network"),
    ("gateway", "is of a private network"),
    ("intra", "is of a private network"),
    ("intranet", "is of a private network"),
    ("lan", "is of a private network"),
    ("localdomain", "is of a private network"),
    ("localdomain4", "is of a private network"),
    ("localdomain6", "is of a private network"),
    ("priv", "is of a private network"),
    ("private", "is of a private network"),
    ("router", "is of a private network"),
    ("workgroup", "is of a private network"),
    // Not delegated; clusters and containers use them.
    ("cluster", "is of a cluster"),
    ("consul", "is of a cluster"),
    ("default", "is of a cluster"),
    ("docker", "is of a cluster"),
    ("incus", "is of a cluster"),
    ("kube-system", "is of a cluster"),
    ("kubernetes", "is of a cluster"),
    ("lxd", "is of a cluster"),
    ("nomad", "is of a cluster"),
    ("pod", "is of a cluster"),
    ("svc", "is of a cluster"),
    // Alternative resolvers serve these names, not the DNS.
    ("bit", "is not of the DNS"),
    ("eth", "is not of the DNS"),
    ("i2p", "is not of the DNS"),
    // The parent zone is public, but only clouds answer this name.
    ("metadata.goog", "is the name of a cloud's metadata service"),
];

/// The maximum octets of a name, dots included (RFC 1035).
const MAX_NAME: usize = 253;

/// The maximum octets of a label.
const MAX_LABEL: usize = 63;

/// Checks a lower-case name without the trailing dot.
///
/// # Errors
///
/// The error is a predicate, such as "has an empty label".
pub(crate) fn check(name: &str) -> Result<(), &'static str> {
    if name.len() > MAX_NAME {
        return Err("has more than 253 octets");
    }
    let mut labels = 0;
    for label in name.split('.') {
        labels += 1;
        if label.is_empty() {
            return Err("has an empty label");
        }
        if label.len() > MAX_LABEL {
            return Err("has a label of more than 63 octets");
        }
        // Standards forbid underscores in host names, but many hosts have them.
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !label.bytes().all(is_legal) || label.starts_with('-') || label.ends_with('-') {
            return Err("has a label that no public host has");
        }
    }
    if labels == 1 {
        return Err("is a single label, which resolvers look up in the local network");
    }
    for (special, what) in SPECIAL {
        let below = name.strip_suffix(special);
        if below.is_some_and(|below| below.is_empty() || below.ends_with('.')) {
            return Err(what);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_names_and_all_below_them_are_refused() {
        for (special, what) in SPECIAL {
            assert!(check(special).is_err(), "{special}");
            assert_eq!(check(&format!("a.b.{special}")), Err(what));
            // The name is harmless as a part of a label, or above another domain.
            assert_eq!(check(&format!("a.x{special}")), Ok(()));
            assert_eq!(check(&format!("{special}.com")), Ok(()));
        }
    }

    #[test]
    fn names_are_what_the_dns_can_hold() {
        let (label, long_label) = ("a".repeat(63), "a".repeat(64));
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        for name in [
            "a.b",
            "a-b.example.com",
            "_x.example.com",
            "xn--bcher-kva.com",
            &longest,
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        let too_long = format!("{longest}a");
        let long_label = format!("{long_label}.com");
        for name in [
            "",
            ".",
            "a",
            "a..b",
            ".a.b",
            "-a.b",
            "a-.b",
            "a,b.c",
            &too_long,
            &long_label,
        ] {
            assert!(check(name).is_err(), "{name}");
        }
    }
}
