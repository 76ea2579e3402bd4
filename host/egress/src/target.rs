//! Checks an untrusted URL and turns it into a [`EgressTarget`]: parse, scheme, user name, port, host, policy.
//!
//! **Invariant:** this module uses no network; a URL that it refuses does not even cause a look-up.

use http::uri::PathAndQuery;
use url::Url;

use crate::MAX_URL_BYTES;
use crate::names;
use crate::origin::{Address, UrlOrigin};
use crate::policy::EgressPolicy;
use crate::refusal::Rule;

/// The ports that every policy allows.
const PORTS: [u16; 2] = [80, 443];

/// The checked target of a request.
#[derive(Debug, Clone)]
pub(crate) struct EgressTarget {
    /// The URL, as the parser normalised it, without its fragment.
    pub(crate) url: Url,
    pub(crate) origin: UrlOrigin,
    /// The target in the request line.
    pub(crate) path_and_query: PathAndQuery,
    /// Whether the operator exempts this host and port from the rule for public addresses.
    pub(crate) is_exempt: bool,
}

impl EgressTarget {
    /// Checks an untrusted URL for a method.
    pub(crate) fn vet(
        text: &str,
        method: &http::Method,
        policy: &EgressPolicy,
    ) -> Result<Self, Rule> {
        let mut url = parse(text)?;
        url.set_fragment(None);
        match url.scheme() {
            "https" => {}
            "http" if policy.plain_http => {}
            "http" => return Err(Rule::PlainHttp),
            _ => return Err(Rule::Scheme),
        }
        // The parser drops an empty user name.
        if authority(text).contains('@') || !url.username().is_empty() || url.password().is_some() {
            return Err(Rule::Userinfo);
        }
        let origin = UrlOrigin::of(&url).ok_or(Rule::Malformed("it has no host"))?;
        let is_exempt = policy.exempts(&origin.host, origin.port);
        if !is_exempt && !PORTS.contains(&origin.port) && !policy.ports.contains(&origin.port) {
            return Err(Rule::Port(origin.port));
        }
        match &origin.host {
            Address::Name(_) if is_exempt => {}
            Address::Name(name) => names::check(name).map_err(Rule::Name)?,
            Address::Ip(_) if policy.names_only => return Err(Rule::NameWanted),
            Address::Ip(_) if is_exempt => {}
            Address::Ip(address) => {
                if let Some(special) = policy.refuses(*address) {
                    return Err(Rule::Literal(special));
                }
            }
        }
        policy.check(&origin.host, method, url.path())?;
        let path_and_query = url[url::Position::BeforePath..]
            .parse()
            .map_err(|_| Rule::Malformed("its path is invalid"))?;
        Ok(Self {
            url,
            origin,
            path_and_query,
            is_exempt,
        })
    }

    /// Returns the URL of a `Location` header from this target.
    ///
    /// Absolute URLs and URLs with a host get the strict checks of a first URL: the parser's rules for relative URLs
    /// would read `https:/other` and `///other` as another host.
    pub(crate) fn resolve(&self, location: &str) -> Result<String, Rule> {
        check_characters(location)?;
        if scheme(location).is_some() {
            Ok(location.to_owned())
        } else if location.starts_with("//") {
            Ok(format!("{}:{location}", self.url.scheme()))
        } else {
            let joined = self.url.join(location);
            let joined = joined.map_err(|_| Rule::Malformed("the redirect target is invalid"))?;
            Ok(joined.into())
        }
    }
}

fn check_characters(text: &str) -> Result<(), Rule> {
    if text.len() > MAX_URL_BYTES {
        return Err(Rule::UrlTooLong);
    }
    if text.chars().any(|c| c.is_control() || c == ' ') {
        return Err(Rule::ControlCharacter);
    }
    if text.contains('\\') {
        return Err(Rule::Backslash);
    }
    Ok(())
}

fn parse(text: &str) -> Result<Url, Rule> {
    check_characters(text)?;
    let url = Url::parse(text).map_err(|error| Rule::Malformed(what(error)))?;
    // For these schemes, the parser adds and drops slashes until there is a host.
    let is_web = matches!(url.scheme(), "http" | "https");
    if is_web && authority(text).is_empty() {
        return Err(Rule::Malformed(
            "its scheme is not followed by // and a host",
        ));
    }
    Ok(url)
}

/// The parser's errors in weir's own words, without a quotation.
fn what(error: url::ParseError) -> &'static str {
    use url::ParseError::{
        EmptyHost, InvalidDomainCharacter, InvalidIpv4Address, InvalidIpv6Address, InvalidPort,
        RelativeUrlWithoutBase,
    };
    match error {
        EmptyHost => "it has no host",
        InvalidPort => "its port is invalid",
        InvalidIpv4Address | InvalidIpv6Address => "its host is an invalid address",
        InvalidDomainCharacter => "its host holds a character that no name has",
        RelativeUrlWithoutBase => "it does not begin with a scheme",
        _ => "its host is not a valid name",
    }
}

/// The scheme before the first colon, if there is one.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(':')?;
    let mut bytes = scheme.bytes();
    let begins = bytes.next()?.is_ascii_alphabetic();
    let goes_on = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    (begins && bytes.all(goes_on)).then_some(scheme)
}

/// The authority as written: the text between `//` and the path; empty if there is none.
fn authority(text: &str) -> &str {
    let rest = scheme(text).map_or("", |scheme| &text[scheme.len() + 1..]);
    let rest = rest.strip_prefix("//").unwrap_or_default();
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}
