//! What is asked for, what comes back, and which headers and credentials go along.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use weir_storage::secrets::Secret;

use crate::origin::UrlOrigin;
use crate::policy::{Policy, is_below};
use crate::refusal::Rule;
use crate::target::Target;

/// A request as a stranger would have it sent, but for the host's own headers and the credential.
#[derive(Debug, Clone)]
pub struct Request {
    /// One that the policy allows.
    pub method: Method,
    /// As the stranger wrote it.
    pub url: String,
    /// The stranger's, too: names and values.
    pub headers: Vec<(String, String)>,
    /// Headers that the host itself adds, such as `idempotency-key` or a webhook's signature. The stranger may not set
    /// them, too, and they do not follow a redirect to another origin.
    pub host_headers: HeaderMap,
    /// Empty for none.
    pub body: Bytes,
    /// Goes along where it is bound to; elsewhere the request is refused.
    pub credential: Option<Credential>,
}

impl Request {
    /// A request with neither headers, body nor credential.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self {
            method,
            url: url.into(),
            headers: Vec::new(),
            host_headers: HeaderMap::new(),
            body: Bytes::new(),
            credential: None,
        }
    }
}

/// What proves to a server who calls. It is sent to its origin alone, by its methods, below its path, in its header.
#[derive(Debug, Clone)]
pub struct Credential {
    /// What refusals call it.
    pub name: String,
    /// All of the header's value, such as `Bearer …`.
    pub value: Secret,
    /// Where it may be sent.
    pub origin: UrlOrigin,
    /// With which methods.
    pub methods: Vec<Method>,
    /// Below which path, as in [`Policy::path_prefixes`].
    pub path_prefix: String,
    /// In which header.
    pub header: HeaderName,
}

impl Credential {
    /// Whether its header and value are such that it can be sent at all.
    pub fn is_sendable(&self) -> bool {
        self.header().is_ok()
    }

    /// Whether it may go along there.
    ///
    /// # Errors
    ///
    /// Says what it is bound to otherwise.
    pub(crate) fn check(&self, target: &Target, method: &Method) -> Result<(), Rule> {
        let bound = |what| Rule::CredentialBound {
            name: self.name.clone(),
            what,
        };
        if self.origin != target.origin {
            return Err(bound("origin"));
        }
        if !self.methods.contains(method) {
            return Err(bound("method"));
        }
        match is_below(target.url.path(), &self.path_prefix)? {
            true => Ok(()),
            false => Err(bound("path")),
        }
    }

    /// The header that it is sent as.
    pub(crate) fn header(&self) -> Result<(HeaderName, HeaderValue), Rule> {
        let unfit = || Rule::CredentialUnfit(self.name.clone());
        if is_the_connections(&self.header) {
            return Err(unfit());
        }
        let mut value = HeaderValue::from_str(self.value.expose()).map_err(|_| unfit())?;
        value.set_sensitive(true);
        Ok((self.header.clone(), value))
    }
}

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Response {
    /// Three digits; a redirect's only where it names no place.
    pub status: u16,
    /// As the server sent them; of them, too, nothing is to be believed.
    pub headers: HeaderMap,
    /// At most [`Policy::max_bytes`] of it.
    pub body: Bytes,
    /// Whether there was more of it.
    pub truncated: bool,
    /// Where it came from, which a redirect has changed.
    pub url: String,
}

/// The most headers that a caller sets.
const MAX_HEADERS: usize = 32;

/// Bytes of their names and values.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// What any caller may set.
const ALLOWED: [HeaderName; 10] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::CONTENT_LANGUAGE,
    header::CONTENT_TYPE,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_UNMODIFIED_SINCE,
    HeaderName::from_static("prefer"),
    header::RANGE,
];

/// What of it follows a redirect to another origin: what says nothing of who asks.
const FOLLOWS_ANYWHERE: [HeaderName; 4] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::CONTENT_LANGUAGE,
    header::CONTENT_TYPE,
];

/// Headers that frame a message, lead it, or say through whom it came: never a caller's, whatever a policy lists.
fn is_the_connections(name: &HeaderName) -> bool {
    const NAMES: [&str; 18] = [
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "keep-alive",
        "max-forwards",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "x-http-method-override",
        "x-real-ip",
    ];
    let name = name.as_str();
    NAMES.contains(&name)
        || name.starts_with("proxy-")
        || name.starts_with("x-forwarded")
        || name.starts_with("x-original-")
}

/// Checks the caller's headers, and adds the host's own.
pub(crate) fn vet_headers(request: &Request, policy: &Policy) -> Result<HeaderMap, Rule> {
    let pairs = &request.headers;
    let sizes = pairs.iter().map(|(name, value)| name.len() + value.len());
    if pairs.len() > MAX_HEADERS || sizes.sum::<usize>() > MAX_HEADER_BYTES {
        return Err(Rule::TooManyHeaders);
    }
    let proof = request.credential.as_ref().map(|own| &own.header);
    let mut headers = HeaderMap::with_capacity(pairs.len() + request.host_headers.len() + 4);
    for (name, value) in pairs {
        let name = HeaderName::try_from(name.as_str()).map_err(|_| Rule::HeaderMalformed)?;
        let is_listed = ALLOWED.contains(&name) || policy.headers.contains(&name);
        let is_the_hosts = is_the_connections(&name)
            || matches!(name, header::AUTHORIZATION | header::COOKIE)
            || proof == Some(&name)
            || request.host_headers.contains_key(&name);
        if !is_listed || is_the_hosts {
            return Err(Rule::Header(name.as_str().chars().take(64).collect()));
        }
        // Refuses control characters, CR and LF among them.
        let value = HeaderValue::from_str(value).map_err(|_| Rule::HeaderMalformed)?;
        headers.append(name, value);
    }
    headers.extend(request.host_headers.clone());
    Ok(headers)
}

/// Drops what must not follow a redirect to another origin.
pub(crate) fn strip_for_another_origin(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers.keys().cloned().collect();
    for name in names {
        if !FOLLOWS_ANYWHERE.contains(&name) {
            headers.remove(name);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn verdict(name: &str, value: &str, listed: &[&str]) -> Result<HeaderMap, Rule> {
        let mut request = Request::new(Method::GET, "https://example.com/");
        request.headers = vec![(name.into(), value.into())];
        request
            .host_headers
            .insert("webhook-id", HeaderValue::from_static("m"));
        request.credential = Some(Credential {
            name: "example".into(),
            value: Secret::new("secret".into()),
            origin: "https://example.com".parse().unwrap(),
            methods: vec![Method::GET],
            path_prefix: "/".into(),
            header: HeaderName::from_static("x-api-key"),
        });
        let policy = Policy {
            headers: listed.iter().map(|name| name.parse().unwrap()).collect(),
            ..Policy::http()
        };
        vet_headers(&request, &policy)
    }

    #[test]
    fn callers_set_what_is_listed_and_nothing_that_is_the_hosts() {
        assert_eq!(verdict("Accept", "text/html", &[]).unwrap().len(), 2);
        assert!(verdict("x-custom", "1", &[]).is_err());
        assert!(verdict("X-Custom", "1", &["x-custom"]).is_ok());
        for name in [
            "Host",
            "Authorization",
            "Cookie",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "Proxy-Authorization",
            "Proxy-Connection",
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "Accept-Encoding",
            "X-Api-Key",
            "Webhook-Id",
        ] {
            // Not even where an operator lists it.
            let refused = verdict(name, "x", &[name]);
            assert_eq!(refused, Err(Rule::Header(name.to_lowercase())));
        }
    }

    #[test]
    fn a_header_that_would_be_two_is_none() {
        for (name, value) in [
            ("accept\r\nhost", "x"),
            ("accept", "x\r\nhost: other"),
            ("accept", "x\n"),
            ("accept", "\0"),
            ("accept ", "x"),
            ("", "x"),
        ] {
            assert_eq!(verdict(name, value, &[]), Err(Rule::HeaderMalformed));
        }
        let long = "x".repeat(MAX_HEADER_BYTES);
        assert_eq!(verdict("accept", &long, &[]), Err(Rule::TooManyHeaders));
    }
}
