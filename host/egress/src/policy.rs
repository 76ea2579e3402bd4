//! The operator's policy for one caller. Neither the caller nor its requests can change it.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use http::Method;
use http::header::HeaderName;
use ipnet::IpNet;
use serde::Deserialize;

use crate::addresses::{SpecialBlock, special_purpose};
use crate::origin::Address;
use crate::refusal::Rule;

/// The requests that a caller may send. Start with [`EgressPolicy::http`] or [`EgressPolicy::webhook`].
#[derive(Debug, Clone)]
pub struct EgressPolicy {
    pub hosts: Vec<HostPattern>,
    /// Denied hosts, which take precedence over `hosts`; a denied address also blocks names that resolve to it.
    pub denied_hosts: Vec<HostPattern>,
    pub methods: Vec<Method>,
    /// Allowed path prefixes, compared by segment: `/v1` covers `/v1` and `/v1/x`, not `/v1x`.
    pub path_prefixes: Vec<String>,
    /// Whether `http` is allowed; else only `https`.
    pub plain_http: bool,
    /// Allowed ports besides 80 and 443.
    pub ports: Vec<u16>,
    /// Whether the host must be a name, not an address.
    pub names_only: bool,
    /// Whether the guard follows redirects.
    pub redirects: bool,
    /// Headers that the caller may set, besides the headers that every caller may set: `accept`, `accept-language`,
    /// `content-language`, `content-type`, `if-match`, `if-modified-since`, `if-none-match`, `if-unmodified-since`,
    /// `prefer` and `range`.
    pub headers: Vec<HeaderName>,
    /// Maximum bytes of a request body, and of a response body, which the guard truncates.
    pub max_bytes: usize,
    /// Timeout of the complete request, look-ups and redirects included.
    pub timeout: Duration,
    /// Non-public hosts and addresses that the caller may reach.
    pub exemptions: Vec<Exemption>,
}

impl EgressPolicy {
    /// Allows any public host, by `http` and `https`, within 1 MiB and 10 s.
    pub fn http() -> Self {
        Self {
            hosts: vec![HostPattern::any()],
            denied_hosts: Vec::new(),
            methods: METHODS.to_vec(),
            path_prefixes: vec!["/".into()],
            plain_http: true,
            ports: Vec::new(),
            names_only: false,
            redirects: true,
            headers: Vec::new(),
            max_bytes: 1 << 20,
            timeout: Duration::from_secs(10),
            exemptions: Vec::new(),
        }
    }

    /// Allows webhooks: `POST` by `https`, to a name, without redirects.
    pub fn webhook() -> Self {
        Self {
            methods: vec![Method::POST],
            plain_http: false,
            names_only: true,
            redirects: false,
            ..Self::http()
        }
    }

    /// Checks a URL and a method against the lists.
    pub(crate) fn check(&self, host: &Address, method: &Method, path: &str) -> Result<(), Rule> {
        if !self.hosts.iter().any(|pattern| pattern.matches(host)) {
            return Err(Rule::HostNotListed);
        }
        if self.denies(host) {
            return Err(Rule::HostDenied);
        }
        if !METHODS.contains(method) || !self.methods.contains(method) {
            return Err(Rule::MethodNotListed);
        }
        let prefixes = self.path_prefixes.iter();
        let mut verdicts = prefixes.map(|prefix| is_below(path, prefix));
        match verdicts.find(|verdict| *verdict != Ok(false)) {
            Some(Ok(_)) => Ok(()),
            Some(Err(rule)) => Err(rule),
            None => Err(Rule::PathNotListed),
        }
    }

    pub(crate) fn denies(&self, host: &Address) -> bool {
        self.denied_hosts
            .iter()
            .any(|pattern| pattern.matches(host))
    }

    /// The block that makes an address unreachable; `None` if the address is public or exempt.
    pub(crate) fn refuses(&self, address: IpAddr) -> Option<&'static SpecialBlock> {
        let covers = |exemption: &Exemption| matches!(exemption.0, ExemptTarget::Network(network) if network.contains(&address));
        match self.exemptions.iter().any(covers) {
            true => None,
            false => special_purpose(address),
        }
    }

    /// Whether this host may have any address at this port.
    pub(crate) fn exempts(&self, host: &Address, port: u16) -> bool {
        let covers = |exemption: &Exemption| matches!(&exemption.0, ExemptTarget::Host(own, at) if own == host && *at == port);
        self.exemptions.iter().any(covers)
    }
}

/// All methods that a policy can allow; methods that change the connection are missing.
pub(crate) const METHODS: [Method; 6] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

/// Whether a path lies below a prefix, segment by segment.
///
/// # Errors
///
/// If the prefix restricts the path, the guard also blocks ambiguous paths: an escaped slash, dot, backslash or percent
/// sign, or a segment that begins with two dots.
pub(crate) fn is_below(path: &str, prefix: &str) -> Result<bool, Rule> {
    if prefix.is_empty() || prefix == "/" {
        return Ok(true);
    }
    let rest = path.strip_prefix(prefix);
    if !rest.is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/')) {
        return Ok(false);
    }
    let escaped = ["%2e", "%2f", "%5c", "%25"];
    let lower = path.to_ascii_lowercase();
    let is_unclear = escaped.iter().any(|escape| lower.contains(escape))
        || path.split('/').any(|segment| segment.starts_with(".."));
    match is_unclear {
        true => Err(Rule::PathUnclear),
        false => Ok(true),
    }
}

/// A pattern for hosts: `api.example.com`, `*.example.com` (subdomains only), an address, or `*`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct HostPattern(Pattern);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Any,
    Below(String),
    Exactly(Address),
}

impl HostPattern {
    /// `*`: any host.
    pub const fn any() -> Self {
        Self(Pattern::Any)
    }

    fn matches(&self, host: &Address) -> bool {
        match (&self.0, host) {
            (Pattern::Any, _) => true,
            (Pattern::Exactly(own), host) => own == host,
            (Pattern::Below(parent), Address::Name(name)) => {
                let below = name.strip_suffix(parent.as_str());
                below.is_some_and(|below| below.ends_with('.'))
            }
            (Pattern::Below(_), Address::Ip(_)) => false,
        }
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let not_one = || {
            format!(
                "{text:?} is none of api.example.com, *.example.com, 192.0.2.1, [2001:db8::1] and *"
            )
        };
        let pattern = match text.strip_prefix("*.") {
            _ if text == "*" => Pattern::Any,
            Some(parent) => match Address::parse(parent) {
                Some(Address::Name(parent)) => Pattern::Below(parent),
                _ => return Err(not_one()),
            },
            None => Pattern::Exactly(Address::parse(text).ok_or_else(not_one)?),
        };
        // The URL parser accepts an asterisk in a name.
        match &pattern {
            Pattern::Below(name) | Pattern::Exactly(Address::Name(name)) if name.contains('*') => {
                Err(not_one())
            }
            _ => Ok(Self(pattern)),
        }
    }
}

impl TryFrom<String> for HostPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// An exemption from the rule for public addresses: a host with its port (`page.internal:8080`, `127.0.0.1:8080`), at
/// any address, or a network (`10.1.0.0/16`) at allowed ports.
///
/// The host must still match [`EgressPolicy::hosts`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Exemption(ExemptTarget);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ExemptTarget {
    Host(Address, u16),
    Network(IpNet),
}

impl FromStr for Exemption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self(ExemptTarget::Network(network.trunc())));
        }
        let host = text.rsplit_once(':').and_then(|(host, port)| {
            let port = port.parse().ok().filter(|port| *port != 0)?;
            Some(ExemptTarget::Host(Address::parse(host)?, port))
        });
        host.map(Self).ok_or_else(|| {
            format!("{text:?} is neither HOST:PORT nor a network such as 10.1.0.0/16")
        })
    }
}

impl TryFrom<String> for Exemption {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}
