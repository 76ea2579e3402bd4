//! Where an adapter's request may go: to its upstream's base URL, and nowhere else.
//!
//! The guest gives a path; the host owns scheme, authority and the base's own path. The path is checked
//! by its bytes, then *appended*, never joined as a relative reference: joining is where `//other/x`,
//! `/../` and backslashes change the host. No URL parser normalises anything afterwards, and the result's
//! origin and prefix are checked once more.
//!
//! **Invariant:** the request that comes out goes to the base's authority, below the base's path, and
//! bears only headers that the host did not reserve.

use std::fmt;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Full;

use crate::plugins::bindings::adapter::{CredentialSlot, Header, HttpRequest};
use weir_storage::secrets::Secret;

const MAX_PATH_BYTES: usize = 8 << 10;
const MAX_HEADERS: usize = 32;
const MAX_HEADER_BYTES: usize = 16 << 10;

/// What sets weir apart in an upstream's log.
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION")));

/// What adapters' paths are appended to: an origin and a path without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
    prefix: String,
}

/// Why an adapter's request is not sent. It never quotes what the guest wrote beyond a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// The upstream has no base URL: its adapter was expected to answer alone.
    #[error("the provider has no base_url")]
    NoBaseUrl,
    /// Neither GET nor POST.
    #[error("the method is neither GET nor POST")]
    Method,
    /// The path could lead elsewhere.
    #[error("the path {0}")]
    Path(&'static str),
    /// A header that the host owns, or one that is malformed.
    #[error("the header {0:?} is not the adapter's to set")]
    Header(String),
    /// Too many or too large headers.
    #[error("the headers are too many or too large")]
    TooManyHeaders,
}

impl BaseUrl {
    /// Reads a base URL from the configuration; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text
            .parse::<Uri>()
            .map_err(|error| format!("is not a URL: {error}"))?
            .into_parts();
        let scheme = match parts.scheme {
            Some(scheme) if scheme == Scheme::HTTP || scheme == Scheme::HTTPS => scheme,
            _ => return Err("must begin with https:// or http://".into()),
        };
        let authority = parts.authority.ok_or("names no host")?;
        if authority.as_str().contains('@') {
            return Err("holds a user name; credentials belong under `credential`".into());
        }
        if authority.host().is_empty() {
            return Err("names no host".into());
        }
        let path = parts.path_and_query.as_ref();
        if path.is_some_and(|path| path.query().is_some()) || text.contains('#') {
            return Err("must end with its path: no query, no fragment".into());
        }
        let prefix = path.map_or("", PathAndQuery::path).trim_end_matches('/');
        if !prefix.is_empty() {
            check_path(prefix).map_err(|error| format!("is refused: {error}"))?;
        }
        Ok(Self {
            scheme,
            authority,
            prefix: prefix.to_owned(),
        })
    }

    fn append(&self, path_and_query: &str) -> Result<Uri, DestinationError> {
        let malformed = DestinationError::Path("is malformed");
        let whole = format!("{}{path_and_query}", self.prefix);
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(
            PathAndQuery::from_maybe_shared(Bytes::from(whole)).map_err(|_| malformed.clone())?,
        );
        let uri = Uri::from_parts(parts).map_err(|_| malformed.clone())?;
        let same_origin =
            uri.scheme() == Some(&self.scheme) && uri.authority() == Some(&self.authority);
        if !same_origin || !uri.path().starts_with(&self.prefix) {
            return Err(malformed);
        }
        Ok(uri)
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}://{}{}",
            self.scheme, self.authority, self.prefix
        )
    }
}

/// Makes the HTTP request that an adapter asked for, credential included, or says why not.
pub fn build(
    base: Option<&BaseUrl>,
    slot: &CredentialSlot,
    credential: Option<&Secret>,
    asked: HttpRequest,
) -> Result<Request<Full<Bytes>>, DestinationError> {
    let base = base.ok_or(DestinationError::NoBaseUrl)?;
    let method = match asked.method.as_str() {
        "GET" => Method::GET,
        "POST" => Method::POST,
        _ => return Err(DestinationError::Method),
    };
    check_path(&asked.path)?;
    let mut headers = guest_headers(&asked.headers, slot)?;
    headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
    let mut path = asked.path;
    if let Some(credential) = credential {
        apply(slot, credential, &mut path, &mut headers)?;
    } else if let CredentialSlot::Query(name) = slot {
        refuse_parameter(&path, name)?;
    }
    let mut request = Request::new(Full::new(Bytes::from(asked.body)));
    *request.method_mut() = method;
    *request.uri_mut() = base.append(&path)?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Checks a path and query by their bytes.
pub fn check_path(path: &str) -> Result<(), DestinationError> {
    let refuse = |why| Err(DestinationError::Path(why));
    if path.len() > MAX_PATH_BYTES {
        return refuse("is too long");
    }
    if !path.starts_with('/') {
        return refuse("does not begin with a slash");
    }
    if !path.bytes().all(|byte| (0x21..=0x7e).contains(&byte)) {
        return refuse("holds a space, a control character or non-ASCII text");
    }
    if path.contains(['\\', '#', '"', '<', '>', '^', '`', '{', '|', '}']) {
        return refuse("holds a character that does not belong in one");
    }
    let (path, _query) = path.split_once('?').unwrap_or((path, ""));
    let Some(decoded) = percent_decode(path) else {
        return refuse("holds a broken percent escape");
    };
    if decoded
        .iter()
        .any(|&byte| byte < 0x20 || byte == 0x7f || byte == b'\\')
    {
        return refuse("holds an escaped control character or backslash");
    }
    // Decoded first, so that `%2e%2e` and `..%2f` are what an upstream might take them for.
    for segment in decoded[1..].split(|&byte| byte == b'/') {
        // Some servers drop parameters, so that `..;x` is `..` to them.
        let name = segment
            .split(|&byte| byte == b';')
            .next()
            .unwrap_or_default();
        if matches!(name, b"." | b"..") {
            return refuse("holds a dot segment");
        }
    }
    if decoded[1..].starts_with(b"/") {
        return refuse("begins with two slashes");
    }
    if percent_decode_bytes(&decoded).is_some_and(|twice| has_dot_segment(&twice)) {
        return refuse("holds a dot segment, escaped twice");
    }
    Ok(())
}

/// Headers that frame or route a message, or that prove who sends it: never a guest's.
pub fn is_framing(name: &HeaderName) -> bool {
    const OWNED: [HeaderName; 14] = [
        header::HOST,
        header::COOKIE,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::FORWARDED,
        header::TE,
        header::TRAILER,
        header::UPGRADE,
        header::EXPECT,
        header::VIA,
        // What an upstream compresses the host would have to inflate, and bound.
        header::ACCEPT_ENCODING,
        header::CONTENT_ENCODING,
        header::SET_COOKIE,
    ];
    // What some servers take for the path, the method or the client, whatever the request line says.
    const REWRITING: [&str; 10] = [
        "keep-alive",
        "x-original-url",
        "x-rewrite-url",
        "x-original-host",
        "x-host",
        "x-http-method",
        "x-http-method-override",
        "x-method-override",
        "true-client-ip",
        "cf-connecting-ip",
    ];
    let text = name.as_str();
    OWNED.contains(name)
        || REWRITING.contains(&text)
        || text.starts_with("proxy-")
        || text.starts_with("x-forwarded-")
        || text.starts_with("x-real-")
}

fn guest_headers(asked: &[Header], slot: &CredentialSlot) -> Result<HeaderMap, DestinationError> {
    let size: usize = asked
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if asked.len() > MAX_HEADERS || size > MAX_HEADER_BYTES {
        return Err(DestinationError::TooManyHeaders);
    }
    let mut headers = HeaderMap::with_capacity(asked.len() + 4);
    for (name, value) in asked {
        let refused = || DestinationError::Header(crate::plugins::guest_log::printable(name, 64));
        let parsed = HeaderName::try_from(name.as_str()).map_err(|_| refused())?;
        let is_slot = matches!(slot, CredentialSlot::Header(own) if own.eq_ignore_ascii_case(name));
        if is_slot || parsed == header::AUTHORIZATION || is_framing(&parsed) {
            return Err(refused());
        }
        // Refuses control characters, CR and LF among them.
        let value = HeaderValue::from_str(value).map_err(|_| refused())?;
        headers.append(parsed, value);
    }
    Ok(headers)
}

fn apply(
    slot: &CredentialSlot,
    credential: &Secret,
    path: &mut String,
    headers: &mut HeaderMap,
) -> Result<(), DestinationError> {
    // The catalog has checked that the credential can be a header's value and that a slot's
    // header has a legal name.
    let unfit = || DestinationError::Header("credential".into());
    let mut insert = |name: HeaderName, text: &str| {
        let mut value = HeaderValue::from_str(text).map_err(|_| unfit())?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    };
    match slot {
        CredentialSlot::None | CredentialSlot::HostSigned(_) => Ok(()),
        CredentialSlot::Bearer => insert(
            header::AUTHORIZATION,
            &format!("Bearer {}", credential.expose()),
        ),
        CredentialSlot::Header(name) => insert(
            HeaderName::try_from(name.as_str()).map_err(|_| unfit())?,
            credential.expose(),
        ),
        CredentialSlot::Query(name) => {
            refuse_parameter(path, name)?;
            path.push(if path.contains('?') { '&' } else { '?' });
            percent_encode(name, path);
            path.push('=');
            percent_encode(credential.expose(), path);
            Ok(())
        }
    }
}

/// A guest that sets the credential's own parameter could have its value preferred to ours.
fn refuse_parameter(path: &str, name: &str) -> Result<(), DestinationError> {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let taken = query.split(['&', ';']).any(|pair| {
        let key = pair.split('=').next().unwrap_or_default();
        percent_decode(key).is_none_or(|key| key.eq_ignore_ascii_case(name.as_bytes()))
    });
    if taken {
        return Err(DestinationError::Path("sets the credential's parameter"));
    }
    Ok(())
}

fn has_dot_segment(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/' || byte == b'\\')
        .any(|segment| matches!(segment, b"." | b".."))
}

fn percent_decode(text: &str) -> Option<Vec<u8>> {
    percent_decode_bytes(text.as_bytes())
}

fn percent_decode_bytes(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(*bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        decoded.push((high * 16 + low) as u8);
    }
    Some(decoded)
}

/// Appends a text as a query parameter writes it.
pub(super) fn percent_encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn asked(path: &str, headers: &[(&str, &str)]) -> HttpRequest {
        HttpRequest {
            method: "POST".into(),
            path: path.into(),
            headers: headers.iter().map(|&(n, v)| (n.into(), v.into())).collect(),
            body: b"{}".to_vec(),
        }
    }

    fn uri(path: &str, slot: &CredentialSlot) -> Result<String, DestinationError> {
        let base = BaseUrl::parse("https://api.example.com/v1/").unwrap();
        let key = Secret::new("k&y=1".into());
        build(Some(&base), slot, Some(&key), asked(path, &[])).map(|r| r.uri().to_string())
    }

    #[test]
    fn a_path_is_appended_to_the_base() {
        assert_eq!(
            uri("/chat/completions?x=1", &CredentialSlot::Bearer).unwrap(),
            "https://api.example.com/v1/chat/completions?x=1"
        );
    }

    #[test]
    fn paths_that_could_lead_elsewhere_are_refused() {
        let hostile = [
            "",
            "x",
            "//other/x",
            "///x",
            "/%2f%2fother",
            "http://other/x",
            "@other/x",
            ":80/x",
            "/..",
            "/../x",
            "/a/../../x",
            "/./x",
            "/%2e%2e/x",
            "/%2E./x",
            "/.%2e",
            "/a/%2e%2e%2fx",
            "/..%2fx",
            "/%252e%252e/x",
            "/a%5c..%5cx",
            "/\\other",
            "\\\\other",
            "/a\\b",
            "/x#f",
            "/x y",
            "/x\ty",
            "/x\r\nHost: other",
            "/x%0d%0aHost:%20other",
            "/x%00",
            "/é",
            "/%zz",
            "/%2",
            "/..;a=1/x",
            "/x\u{7f}",
            "/{x}",
        ];
        for path in hostile {
            assert!(
                matches!(
                    uri(path, &CredentialSlot::Bearer),
                    Err(DestinationError::Path(_))
                ),
                "{path:?}"
            );
        }
        assert!(
            uri(
                &format!("/{}", "x".repeat(MAX_PATH_BYTES)),
                &CredentialSlot::None
            )
            .is_err()
        );
    }

    #[test]
    fn harmless_paths_pass() {
        for path in [
            "/",
            "/x",
            "/...",
            "/a..b/.hidden",
            "/m:generate?a=..",
            "/x?u=http://o/../",
            "/a%20b",
        ] {
            assert!(uri(path, &CredentialSlot::Bearer).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn headers_that_the_host_owns_are_refused() {
        let base = BaseUrl::parse("https://api.example.com").unwrap();
        let slot = CredentialSlot::Header("X-Api-Key".into());
        let hostile = [
            ("Host", "other"),
            ("host", "other"),
            ("AUTHORIZATION", "Bearer x"),
            ("Cookie", "a=b"),
            ("Content-Length", "0"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "close"),
            ("Proxy-Authorization", "x"),
            ("Forwarded", "for=x"),
            ("X-Forwarded-For", "x"),
            ("x-api-key", "mine"),
            ("Accept-Encoding", "gzip"),
            ("Expect", "100-continue"),
            ("a\r\nHost", "x"),
            ("a", "b\r\nHost: other"),
            ("", "x"),
            ("a b", "x"),
            ("a", "\0"),
        ];
        for (name, value) in hostile {
            let built = build(Some(&base), &slot, None, asked("/x", &[(name, value)]));
            assert!(
                matches!(built, Err(DestinationError::Header(_))),
                "{name:?}: {value:?}"
            );
        }
    }

    #[test]
    fn the_credential_goes_into_its_slot_only() {
        let base = BaseUrl::parse("https://api.example.com").unwrap();
        let key = Secret::new("k&y=1".into());
        let made = |slot| build(Some(&base), &slot, Some(&key), asked("/x", &[])).unwrap();
        let bearer = made(CredentialSlot::Bearer);
        assert_eq!(bearer.headers()["authorization"], "Bearer k&y=1");
        assert!(bearer.headers()["authorization"].is_sensitive());
        let header = made(CredentialSlot::Header("x-goog-api-key".into()));
        assert_eq!(header.headers()["x-goog-api-key"], "k&y=1");
        assert!(!header.headers().contains_key("authorization"));
        let query = made(CredentialSlot::Query("key".into()));
        assert_eq!(query.uri().query(), Some("key=k%26y%3D1"));
        assert!(uri("/x?KEY=mine", &CredentialSlot::Query("key".into())).is_err());
        assert!(uri("/x?%6bey=mine", &CredentialSlot::Query("key".into())).is_err());
    }

    #[test]
    fn base_urls_are_checked() {
        for bad in [
            "",
            "api.example.com",
            "ftp://x",
            "https://",
            "https://u:p@x/",
            "https://x/?a=1",
            "https://x/#f",
            "https://x/a/../b",
            "/v1",
        ] {
            assert!(BaseUrl::parse(bad).is_err(), "{bad:?}");
        }
        let base = BaseUrl::parse("http://127.0.0.1:8000/v1/").unwrap();
        assert_eq!(base.to_string(), "http://127.0.0.1:8000/v1");
    }
}
