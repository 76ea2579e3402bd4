//! CORS: which web pages may call, by their origins (`cors_origins`).
//!
//! What is not listed gets no header of CORS at all, so that a browser keeps the answer from its page. Not by a library's
//! layer: that would answer `OPTIONS` everywhere, and show unlisted origins what listed ones may.
//!
//! Callers prove themselves by headers, never by cookies, so that no answer allows credentials; and a listed page is
//! trusted with a user's tokens anyway, so that it may send any header: SDKs add their own.

use std::fmt;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use url::Url;

/// Seconds for which a browser need not ask again; none keeps it longer than two hours.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, DELETE");

/// What pages may read of an answer's head, beside what all may.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-request-id, request-id, retry-after, x-should-retry, ratelimit, ratelimit-policy, idempotency-replayed, \
     x-weir-ignored, x-weir-provider, x-weir-attempts",
);

/// An origin as browsers write it, e.g. `https://app.example` or `http://localhost:3000`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Origin(String);

impl Origin {
    /// Whether its pages come without TLS, as a developer's do.
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
                "an origin has no path and is written as browsers send it: {written:?}"
            )),
            None => Err(
                "an origin is a scheme and a host, and a port if it is not the scheme's: \
                 \"https://app.example\""
                    .to_owned(),
            ),
        }
    }
}

/// The origin of the page that a request is from, if it is among these.
pub fn listed_origin(listed: &[Origin], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    listed
        .iter()
        .any(|Origin(listed)| listed.as_bytes() == origin.as_bytes())
        .then(|| origin.clone())
}

/// Whether a browser asks what it may send.
pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to that, for a listed origin; `asked` is the request's head.
pub fn preflight(asked: &HeaderMap) -> (StatusCode, HeaderMap) {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    if let Some(wanted) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    (StatusCode::NO_CONTENT, headers)
}

/// Lets a listed origin's page read an answer.
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
