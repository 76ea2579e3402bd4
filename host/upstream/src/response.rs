//! The parts of a provider's response that an adapter may see.

use std::time::SystemTime;

use http::header::{self, HeaderMap, HeaderName};
use weir_sandbox::adapter::bindings::adapter::{Description, Header};
use weir_sandbox::adapter::description;

/// Response headers that every adapter sees, beside the headers that its description asks for.
const VISIBLE_HEADERS: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    header::RETRY_AFTER,
    HeaderName::from_static("retry-after-ms"),
    HeaderName::from_static("x-should-retry"),
];

/// Tells whether a response has a `Content-Encoding`. weir asks for none and decodes none: an adapter could not read such a
/// body, and the redactor would not find a credential in it.
pub fn is_encoded(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    encodings.any(|encoding| {
        let encoding = encoding.as_bytes().trim_ascii();
        !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity")
    })
}

/// Returns the response headers that an adapter sees. Headers with the credential in them are left out, and `Retry-After`
/// is always in seconds: adapters have no clock that could read its other form, a date.
pub fn visible_headers(
    headers: &HeaderMap,
    adapter: &Description,
    credential: Option<&str>,
) -> Vec<Header> {
    headers
        .iter()
        .filter(|(name, _)| VISIBLE_HEADERS.contains(name) || description::asks_for(adapter, name))
        .filter_map(|(name, value)| {
            let value = value.to_str().ok()?;
            let seconds = match name {
                &header::RETRY_AFTER => seconds_until(value, headers),
                _ => None,
            };
            let value = seconds.map_or_else(|| value.to_owned(), |seconds| seconds.to_string());
            Some((name.as_str().to_owned(), value))
        })
        .filter(|(_, value)| credential.is_none_or(|credential| !value.contains(credential)))
        .collect()
}

/// Returns the seconds until an HTTP date, rounded up, or nothing if it is none. The response's own `Date` is the start if
/// it has one, so that a difference between the clocks does not count.
fn seconds_until(date: &str, headers: &HeaderMap) -> Option<u64> {
    let until = httpdate::parse_http_date(date.trim()).ok()?;
    let sent = headers.get(header::DATE);
    let sent = sent.and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let left = until.duration_since(sent.unwrap_or_else(SystemTime::now));
    // A date in the past is no pause.
    let left = left.unwrap_or_default();
    Some(left.as_secs() + u64::from(left.subsec_nanos() > 0))
}
