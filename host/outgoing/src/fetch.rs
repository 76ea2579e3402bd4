//! Requests to issuers for small documents, with limits of size and time.
//!
//! The [client](crate::client) follows no redirect and uses no proxy, so that every document comes from the configured
//! address.

use std::time::Duration;

pub use reqwest::RequestBuilder;
use reqwest::header::HeaderMap;
use url::{Host, Url};

use crate::{Client, root_cause};

/// The timeout of one document, from the connection to its last byte.
const TIMEOUT: Duration = Duration::from_secs(5);

const MAX_BYTES: usize = 256 << 10;

/// The reasons for a missing document. Errors hold nothing of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No connection, or an interrupted one.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// An incomplete response at the timeout.
    #[error("took longer than {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// A response with another status than 200.
    #[error("answered {0}")]
    Status(u16),
    /// A response above the size limit.
    #[error("answered with more than {MAX_BYTES} bytes")]
    TooLarge,
    /// An invalid response.
    #[error("answered with something that {0}")]
    Malformed(&'static str),
}

/// Sends a request. Returns the headers and the body of a response with status 200.
pub async fn fetch(request: RequestBuilder) -> Result<(HeaderMap, Vec<u8>), FetchError> {
    let exchange = async {
        let mut response = request
            .send()
            .await
            .map_err(|error| FetchError::Unreachable(root_cause(error)))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(FetchError::Status(status));
        }
        let mut body = Vec::new();
        while let Some(piece) = response
            .chunk()
            .await
            .map_err(|_| FetchError::Unreachable("the response broke off".into()))?
        {
            if body.len() + piece.len() > MAX_BYTES {
                return Err(FetchError::TooLarge);
            }
            body.extend_from_slice(&piece);
        }
        Ok((std::mem::take(response.headers_mut()), body))
    };
    tokio::time::timeout(TIMEOUT, exchange)
        .await
        .unwrap_or(Err(FetchError::TimedOut))
}

/// Fetches a document by GET.
pub async fn get(http: &Client, url: &Url) -> Result<(HeaderMap, Vec<u8>), FetchError> {
    fetch(http.get(url.clone())).await
}

/// Parses the address of an issuer's document; the error names the problem.
///
/// Plain HTTP is allowed only to this machine: an attacker who can change keys in transit can impersonate any user.
pub fn parse_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user name");
    }
    if url.fragment().is_some() {
        return Err("holds a fragment");
    }
    let loopback = match url.host() {
        None => return Err("names no host"),
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
    };
    match url.scheme() {
        "https" => Ok(url),
        "http" if loopback => Ok(url),
        _ => Err("must begin with https:// (http:// only to this machine)"),
    }
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
            "https://:secret@issuer.example/",
            "http:\\\\issuer.example\\@127.0.0.1/",
            "https://issuer.example/#keys",
            "file:///etc/keys",
            "/keys",
            "",
        ] {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
    }
}
