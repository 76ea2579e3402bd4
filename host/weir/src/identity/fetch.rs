//! What identity fetches from issuers: small documents, within bounds of size and time.
//!
//! The shared client follows no redirect and knows no proxy, so that a document comes from the address
//! that the configuration names or from nowhere.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};

use crate::inference::upstream::HttpClient;

/// How long one document may take, from the connection to its last byte.
const TIMEOUT: Duration = Duration::from_secs(5);

const MAX_BYTES: usize = 256 << 10;

/// Why there is no document. Holds nothing of what was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No connection, or one that broke off.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// Not complete in time.
    #[error("took longer than {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// Anything but 200.
    #[error("answered {0}")]
    Status(StatusCode),
    /// Too large.
    #[error("answered with more than {MAX_BYTES} bytes")]
    TooLarge,
    /// Not what it should be.
    #[error("answered with something that {0}")]
    Malformed(&'static str),
}

/// Sends a request, and returns the head and the body of an answer of status 200.
pub(super) async fn fetch(
    http: &HttpClient,
    mut request: Request<Full<Bytes>>,
) -> Result<(HeaderMap, Bytes), FetchError> {
    request.headers_mut().insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION"))),
    );
    let exchange = async {
        let response = http
            .request(request)
            .await
            .map_err(|error| FetchError::Unreachable(root_cause(&error)))?;
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            return Err(FetchError::Status(head.status));
        }
        let body = Limited::new(body, MAX_BYTES).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => FetchError::TooLarge,
            false => FetchError::Unreachable("the answer broke off".into()),
        })?;
        Ok((head.headers, body.to_bytes()))
    };
    tokio::time::timeout(TIMEOUT, exchange)
        .await
        .unwrap_or(Err(FetchError::TimedOut))
}

/// Fetches a document by GET.
pub(super) async fn get(http: &HttpClient, url: &Uri) -> Result<(HeaderMap, Bytes), FetchError> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = url.clone();
    fetch(http, request).await
}

/// Reads the address of an issuer's document; the error says what is wrong with it.
///
/// Only to this machine may the way be unencrypted: whoever can change the keys on their way can be
/// anybody.
pub(super) fn parse_url(text: &str) -> Result<Uri, &'static str> {
    let url: Uri = text.parse().map_err(|_| "is not a URL")?;
    let authority = url.authority().ok_or("names no host")?;
    if authority.as_str().contains('@') {
        return Err("holds a user name");
    }
    if text.contains('#') {
        return Err("holds a fragment");
    }
    let host = authority.host().trim_matches(['[', ']']);
    let loopback = host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback());
    match url.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => Ok(url),
        Some(scheme) if *scheme == Scheme::HTTP && loopback => Ok(url),
        _ => Err("must begin with https:// (http:// only to this machine)"),
    }
}

fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_encrypted_or_from_this_machine() {
        for good in [
            "https://issuer.example/keys?v=1",
            "http://127.0.0.1:9000/keys",
            "http://[::1]/",
            "http://localhost/",
        ] {
            assert!(parse_url(good).is_ok(), "{good}");
        }
        for bad in [
            "http://issuer.example/keys",
            "http://127.0.0.1.example/",
            "http://127.0.0.1@issuer.example/",
            "https://issuer.example/#keys",
            "file:///etc/keys",
            "/keys",
            "",
        ] {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
    }
}
