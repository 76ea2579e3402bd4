//! The HTTP methods that a tool may use, and the response headers that it sees.

use http::{HeaderMap, Method};

use super::bindings::outbound;

/// Response headers that a tool sees, beside those of rate limits.
const SHOWN: [&str; 8] = [
    "content-type",
    "content-language",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "date",
];

/// The beginnings of the names of rate limit headers.
const SHOWN_PREFIXES: [&str; 2] = ["ratelimit", "x-ratelimit-"];

/// Bytes of the response headers that a tool sees.
const MAX_SHOWN_BYTES: usize = 8 << 10;

/// Returns the response headers that a tool sees. The caller removes credentials from them.
pub fn shown_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut bytes_left = MAX_SHOWN_BYTES;
    let mut shown = Vec::new();
    for (name, value) in headers {
        let name = name.as_str();
        let is_shown =
            SHOWN.contains(&name) || SHOWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let Some(value) = value.to_str().ok().filter(|_| is_shown) else {
            continue;
        };
        let Some(left) = bytes_left.checked_sub(name.len() + value.len()) else {
            break;
        };
        bytes_left = left;
        shown.push((name.to_owned(), value.to_owned()));
    }
    shown
}

/// Returns the HTTP method of a tool's request.
pub fn method(method: outbound::Method) -> Method {
    match method {
        outbound::Method::Get => Method::GET,
        outbound::Method::Post => Method::POST,
        outbound::Method::Put => Method::PUT,
        outbound::Method::Patch => Method::PATCH,
        outbound::Method::Delete => Method::DELETE,
        outbound::Method::Head => Method::HEAD,
    }
}
