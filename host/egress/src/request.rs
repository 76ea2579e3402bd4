//! Requests and responses, and the headers and credentials that the guard sends.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use weir_storage::secrets::Secret;

use crate::origin::UrlOrigin;
use crate::policy::{EgressPolicy, is_below};
use crate::refusal::Rule;
use crate::target::EgressTarget;

/// A request of a model or a plugin, with the host's headers and the credential.
#[derive(Debug, Clone)]
pub struct EgressRequest {
    pub method: Method,
    /// The URL, as the model or plugin wrote it.
    pub url: String,
    /// The model's or plugin's headers: names and values.
    pub headers: Vec<(String, String)>,
    /// Headers of the host, such as `idempotency-key` or a webhook's signature. The model or plugin may not set them,
    /// and redirects to another origin drop them.
    pub host_headers: HeaderMap,
    /// The body; empty for none.
    pub body: Bytes,
    /// The credential. The guard refuses the request if its target is outside of the credential's scope.
    pub credential: Option<Credential>,
}

impl EgressRequest {
    /// Returns a request without headers, body and credential.
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

/// A secret that authenticates the caller to a server. The guard sends it only to its origin, with its methods, below
/// its path, in its header.
#[derive(Debug, Clone)]
pub struct Credential {
    /// The credential's name in refusals.
    pub name: String,
    /// The complete header value, such as `Bearer …`.
    pub value: Secret,
    pub origin: UrlOrigin,
    pub methods: Vec<Method>,
    /// The allowed path prefix, as in [`EgressPolicy::path_prefixes`].
    pub path_prefix: String,
    pub header: HeaderName,
}

impl Credential {
    /// Whether the header and value are valid in a request.
    pub fn is_sendable(&self) -> bool {
        self.header().is_ok()
    }

    /// Checks a request's target and method against the credential's scope.
    ///
    /// # Errors
    ///
    /// The error names the part that differs.
    pub(crate) fn check(&self, target: &EgressTarget, method: &Method) -> Result<(), Rule> {
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

/// A server's response.
#[derive(Debug, Clone)]
pub struct EgressResponse {
    /// The status, of three digits; a redirect's status only if the response names no target.
    pub status: u16,
    /// The server's headers, which are untrusted.
    pub headers: HeaderMap,
    /// The body, up to [`EgressPolicy::max_bytes`].
    pub body: Bytes,
    /// Whether the guard truncated the body.
    pub truncated: bool,
    /// The URL of the response, after redirects.
    pub url: String,
}

/// The maximum number of headers from a caller.
const MAX_HEADERS: usize = 32;

/// The maximum bytes of their names and values.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Headers that every caller may set.
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

/// Headers that a redirect to another origin keeps, because they do not identify the caller.
const FOLLOWS_ANYWHERE: [HeaderName; 4] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::CONTENT_LANGUAGE,
    header::CONTENT_TYPE,
];

/// Whether a header frames a message, routes it, or names its proxies: no policy can let a caller set it.
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

/// Checks the caller's headers, and adds the host's headers.
pub(crate) fn vet_headers(
    request: &EgressRequest,
    policy: &EgressPolicy,
) -> Result<HeaderMap, Rule> {
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
        // The parser rejects control characters, including CR and LF.
        let value = HeaderValue::from_str(value).map_err(|_| Rule::HeaderMalformed)?;
        headers.append(name, value);
    }
    headers.extend(request.host_headers.clone());
    Ok(headers)
}

/// Drops the headers that a redirect to another origin must not carry.
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
        let mut request = EgressRequest::new(Method::GET, "https://example.com/");
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
        let policy = EgressPolicy {
            headers: listed.iter().map(|name| name.parse().unwrap()).collect(),
            ..EgressPolicy::http()
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
            // Even the operator's list does not allow these.
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
