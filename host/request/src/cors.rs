//! CORS: origins of the web pages that may call the API (`cors_origins`).
//!
//! Responses to unlisted origins have no CORS header, so that a browser hides them from the page. A library's layer
//! would respond to `OPTIONS` on every path, and show unlisted origins the permissions of listed ones.
//!
//! Callers authenticate with headers, never with cookies, so no response allows credentials. A listed page handles a
//! user's tokens anyway, so it may send any header: SDKs add their own.

use std::fmt;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use url::Url;

/// Seconds for which a browser may cache the response; browsers cap it at two hours.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// Response headers that pages may read, beside those that are always readable.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-request-id, request-id, retry-after, x-should-retry, ratelimit, ratelimit-policy, idempotency-replayed, \
     x-weir-ignored, x-weir-provider, x-weir-attempts, x-weir-cache, age, x-ratelimit-limit-requests, \
     x-ratelimit-remaining-requests, x-ratelimit-reset-requests",
);

/// An origin in the form that browsers send, e.g. `https://app.example` or `http://localhost:3000`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Origin(String);

impl Origin {
    /// Returns whether the origin uses plain HTTP, as a developer's page does.
    pub fn is_plain(&self) -> bool {
        self.0.starts_with("http://")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for Origin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let written = Url::parse(&text).ok().and_then(|url| {
            let host = url.host_str().filter(|host| !host.is_empty())?;
            let port = url.port().map(|port| format!(":{port}"));
            Some(format!(
                "{}://{host}{}",
                url.scheme(),
                port.unwrap_or_default()
            ))
        });
        match written {
            Some(written) if written == text => Ok(Self(text)),
            Some(written) => Err(format!(
                "an origin has no path and has the form that browsers send: {written:?}"
            )),
            None => Err(
                "an origin is a scheme and a host, and a port if it is not the scheme's: \
                 \"https://app.example\""
                    .to_owned(),
            ),
        }
    }
}

/// Returns the origin of the request's page, if it is listed.
pub fn listed_origin(listed: &[Origin], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    listed
        .iter()
        .any(|Origin(listed)| listed.as_bytes() == origin.as_bytes())
        .then(|| origin.clone())
}

/// Returns whether a request is a preflight request.
pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Returns the response to a listed origin's preflight request; `asked` is the request's head. It allows the method that the
/// page asks for: no list can be incomplete, and the page can read the 405 of a method that the path does not support.
pub fn preflight(asked: &HeaderMap) -> (StatusCode, HeaderMap) {
    let mut headers = HeaderMap::new();
    if let Some(method) = asked.get(header::ACCESS_CONTROL_REQUEST_METHOD) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, method.clone());
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    if let Some(wanted) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    (StatusCode::NO_CONTENT, headers)
}

/// Adds the headers that let a listed origin's page read a response.
pub fn share_with(origin: HeaderValue, headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        for good in [
            "https://app.example",
            "http://localhost:3000",
            "http://[::1]:8080",
            "chrome-extension://abcdefgh",
        ] {
            assert!(Origin::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for (bad, part) in [
            ("https://app.example/", "\"https://app.example\""),
            ("https://App.example", "\"https://app.example\""),
            ("https://app.example:443", "\"https://app.example\""),
            ("https://a:b@app.example", "\"https://app.example\""),
            ("https://app.example/x?y#z", "\"https://app.example\""),
            ("app.example", "a scheme and a host"),
            ("*", "a scheme and a host"),
            ("null", "a scheme and a host"),
            ("https://", "a scheme and a host"),
            ("mailto:a@b.example", "a scheme and a host"),
        ] {
            let error = Origin::try_from(bad.to_owned()).expect_err(bad);
            assert!(error.contains(part), "{bad}: {error}");
        }
    }
}
