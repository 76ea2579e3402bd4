//! The parts of a provider's response that an adapter may see.

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

/// Returns the response headers that an adapter sees. Headers with the credential in them are left out.
pub fn visible_headers(
    headers: &HeaderMap,
    adapter: &Description,
    credential: Option<&str>,
) -> Vec<Header> {
    headers
        .iter()
        .filter(|(name, _)| VISIBLE_HEADERS.contains(name) || description::asks_for(adapter, name))
        .filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        })
        .filter(|(_, value)| credential.is_none_or(|credential| !value.contains(credential)))
        .collect()
}
