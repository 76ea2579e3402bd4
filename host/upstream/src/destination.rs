//! The destination of an adapter's request: its upstream's base URL, and no other.
//!
//! The guest gives a path; the host owns scheme, authority and the base's own path. The host checks the path's bytes,
//! then *appends* it and never joins it as a relative reference: a join lets `//other/x`, `/../` and backslashes
//! change the host. No URL parser normalises the result, and its origin and prefix are checked once more.
//!
//! **Invariant:** the request goes to the base's authority, below the base's path, and has only headers that the host
//! did not reserve.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri};
use weir_dialects::Attachment;
use weir_sandbox::adapter::bindings::adapter::{
    BodyPart, CredentialSlot, Description, Header, HttpRequest,
};
use weir_sandbox::adapter::http_rules;

use crate::credential::Authorization;
use crate::json_text;
use crate::percent::percent_encode;

/// Maximum size of a body in bytes, including attachments: several times the client's limit.
const MAX_BODY_BYTES: usize = 64 << 20;

const MAX_HEADERS: usize = 32;
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Prefix of the media type of a form.
const MULTIPART: &str = "multipart/";

/// The user agent that identifies weir in an upstream's log.
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION")));

const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// The base of adapters' paths: an origin and a path without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
    prefix: String,
}

/// The reason that an adapter's request is not sent. The text quotes no more of the guest's input than a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// The upstream has no base URL, because its adapter should need no requests.
    #[error("the provider has no base_url")]
    NoBaseUrl,
    /// The method is neither GET nor POST.
    #[error("the method is neither GET nor POST")]
    Method,
    /// The path could lead to another resource.
    #[error("the path {0}")]
    Path(&'static str),
    /// A header is the host's, or malformed.
    #[error("the header {0:?} is not allowed for an adapter")]
    Header(String),
    /// The request does not have this attachment, or this text behind the attachments.
    #[error("the body refers to attachment {0}, which does not exist")]
    Attachment(u32),
    /// An attachment contains the boundary of its form.
    #[error("an attachment contains the boundary of its form")]
    Boundary,
    /// A form has a text that stays with the host, which only JSON can have.
    #[error("a form refers to a text of JSON")]
    TextInForm,
    /// The body with its attachments is too large.
    #[error("the body has more than {MAX_BODY_BYTES} bytes")]
    TooLarge,
    /// The headers are too many or too large.
    #[error("the headers are too many or too large")]
    TooManyHeaders,
}

impl BaseUrl {
    /// Parses a base URL from the configuration; the error names its fault.
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
            http_rules::check_bytes(prefix).map_err(|why| format!("is refused: the path {why}"))?;
        }
        Ok(Self {
            scheme,
            authority,
            prefix: prefix.to_owned(),
        })
    }

    /// Returns the host's name or address.
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    /// Returns the port, if the URL has one.
    pub fn port(&self) -> Option<u16> {
        self.authority.port_u16()
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

/// The parts of a body that stay with the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostParts<'a> {
    /// The attachments of the request.
    pub attachments: &'a [Attachment],
    /// Its long texts, which an adapter counts behind the attachments.
    pub texts: &'a [&'a str],
}

/// A part of a body that stays with the host.
enum HostPart<'a> {
    Attachment(&'a [u8]),
    Text(&'a str),
}

impl<'a> HostParts<'a> {
    /// Returns a part by the index that an adapter gave.
    fn get(self, index: u32) -> Result<HostPart<'a>, DestinationError> {
        let position = usize::try_from(index).ok();
        let found = position.and_then(|position| match self.attachments.get(position) {
            Some(attachment) => Some(HostPart::Attachment(&attachment.data)),
            None => {
                let text = self.texts.get(position - self.attachments.len())?;
                Some(HostPart::Text(text))
            }
        });
        found.ok_or(DestinationError::Attachment(index))
    }

    /// Returns the bytes of an attachment, and of nothing else.
    fn attachment(self, index: u32) -> Result<&'a [u8], DestinationError> {
        match self.get(index)? {
            HostPart::Attachment(data) => Ok(data),
            HostPart::Text(_) => Err(DestinationError::Attachment(index)),
        }
    }
}

/// Builds the HTTP request of an adapter with this description, including authorization and the host's parts, or returns
/// the reason of a refusal. `slot` is the place of the credential.
pub fn build(
    base: Option<&BaseUrl>,
    slot: &CredentialSlot,
    description: &Description,
    authorization: Option<&Authorization<'_>>,
    asked: HttpRequest,
    parts: HostParts<'_>,
) -> Result<Request<Bytes>, DestinationError> {
    let base = base.ok_or(DestinationError::NoBaseUrl)?;
    let method = match asked.method.as_str() {
        "GET" => Method::GET,
        "POST" => Method::POST,
        _ => return Err(DestinationError::Method),
    };
    http_rules::check_path(&asked.path, &description.path_prefixes)
        .map_err(DestinationError::Path)?;
    let mut headers = guest_headers(&asked.headers, description, slot)?;
    headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
    // Without this header any encoding would be allowed, and an encoded response is refused.
    headers.insert(header::ACCEPT_ENCODING, IDENTITY);
    let mut path = asked.path;
    if let Some(credential) = authorization.and_then(Authorization::for_slot) {
        apply(slot, credential, &mut path, &mut headers)?;
    } else if let CredentialSlot::Query(name) = slot {
        refuse_parameter(&path, name)?;
    }
    check_boundary(&headers, &asked.body, parts)?;
    let body = put_together(asked.body, parts)?;
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = base.append(&path)?;
    *request.headers_mut() = headers;
    if let Some(authorization) = authorization {
        authorization.sign(&mut request);
    }
    Ok(request)
}

/// Checks that no attachment reads as more than one part of a form. An adapter does not see attachments and therefore
/// cannot choose a boundary that is not in them, and their sender may know its choice.
fn check_boundary(
    headers: &HeaderMap,
    parts: &[BodyPart],
    host_parts: HostParts<'_>,
) -> Result<(), DestinationError> {
    let content_type = headers.get(header::CONTENT_TYPE);
    let Some(content_type) = content_type.and_then(|value| value.to_str().ok()) else {
        return Ok(());
    };
    let mut parameters = content_type.split(';').map(str::trim);
    if !parameters.next().is_some_and(|essence| {
        let kind = essence.get(..MULTIPART.len());
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case(MULTIPART))
    }) {
        return Ok(());
    }
    let boundary = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.eq_ignore_ascii_case("boundary")
            .then(|| value.trim_matches('"'))
    });
    let boundary = boundary.filter(|boundary| !boundary.is_empty());
    let boundary = boundary.ok_or(DestinationError::Header("content-type".into()))?;
    let finder = memchr::memmem::Finder::new(boundary);
    for part in parts {
        if let BodyPart::Attached(index) = part {
            match host_parts.get(*index)? {
                HostPart::Attachment(data) if finder.find(data).is_some() => {
                    return Err(DestinationError::Boundary);
                }
                HostPart::Attachment(_) => {}
                HostPart::Text(_) => return Err(DestinationError::TextInForm),
            }
        }
    }
    Ok(())
}

/// Assembles the body of an adapter: its own bytes, and the host's parts at their places.
fn put_together(
    mut parts: Vec<BodyPart>,
    host_parts: HostParts<'_>,
) -> Result<Bytes, DestinationError> {
    // Most short bodies are one piece, which needs no copy.
    if let [BodyPart::Bytes(whole)] = &mut parts[..] {
        return Ok(Bytes::from(std::mem::take(whole)));
    }
    let mut length = 0_usize;
    for part in &parts {
        length = length.saturating_add(match part {
            BodyPart::Bytes(bytes) => bytes.len(),
            BodyPart::Base64Of(index) => host_parts.attachment(*index)?.len().div_ceil(3) * 4,
            BodyPart::Attached(index) => match host_parts.get(*index)? {
                HostPart::Attachment(data) => data.len(),
                // Escapes add to it.
                HostPart::Text(text) => text.len(),
            },
        });
        check_length(length)?;
    }
    // Room for the escapes of most texts: line ends and quotes.
    let texts: usize = host_parts.texts.iter().map(|text| text.len()).sum();
    let mut body = Vec::with_capacity(length + texts / 16);
    for part in &parts {
        match part {
            BodyPart::Bytes(bytes) => body.extend_from_slice(bytes),
            BodyPart::Attached(index) => match host_parts.get(*index)? {
                HostPart::Attachment(data) => body.extend_from_slice(data),
                HostPart::Text(text) => {
                    json_text::append_escaped(text, &mut body);
                    check_length(body.len())?;
                }
            },
            BodyPart::Base64Of(index) => {
                let data = host_parts.attachment(*index)?;
                let (begin, bytes) = (body.len(), data.len().div_ceil(3) * 4);
                body.resize(begin + bytes, 0);
                STANDARD
                    .encode_slice(data, &mut body[begin..])
                    .expect("its place was measured");
            }
        }
    }
    check_length(body.len())?;
    Ok(Bytes::from(body))
}

fn check_length(bytes: usize) -> Result<(), DestinationError> {
    match bytes > MAX_BODY_BYTES {
        true => Err(DestinationError::TooLarge),
        false => Ok(()),
    }
}

fn guest_headers(
    asked: &[Header],
    description: &Description,
    slot: &CredentialSlot,
) -> Result<HeaderMap, DestinationError> {
    let size: usize = asked
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if asked.len() > MAX_HEADERS || size > MAX_HEADER_BYTES {
        return Err(DestinationError::TooManyHeaders);
    }
    let mut headers = HeaderMap::with_capacity(asked.len() + 4);
    for (name, value) in asked {
        let refused = || DestinationError::Header(weir_sandbox::printable(name, 64));
        let parsed = HeaderName::try_from(name.as_str()).map_err(|_| refused())?;
        let described = &description.request_headers;
        let is_described = described
            .iter()
            .any(|described| parsed == described.as_str());
        // The description was checked at load; headers that must never leave are checked again here.
        let slots = [slot, &description.credential];
        let is_settable = |slot| http_rules::is_settable(&parsed, slot);
        if !is_described || !slots.into_iter().all(is_settable) {
            return Err(refused());
        }
        // The parse refuses control characters, including CR and LF.
        let value = HeaderValue::from_str(value).map_err(|_| refused())?;
        headers.append(parsed, value);
    }
    Ok(headers)
}

fn apply(
    slot: &CredentialSlot,
    credential: &str,
    path: &mut String,
    headers: &mut HeaderMap,
) -> Result<(), DestinationError> {
    // The catalog has checked that the credential is a valid header value and that a slot's header has a legal name.
    let unfit = || DestinationError::Header("credential".into());
    let mut insert = |name: HeaderName, text: &str| {
        let mut value = HeaderValue::from_str(text).map_err(|_| unfit())?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    };
    match slot {
        CredentialSlot::None | CredentialSlot::HostSigned(_) => Ok(()),
        CredentialSlot::Bearer => insert(header::AUTHORIZATION, &format!("Bearer {credential}")),
        CredentialSlot::Header(name) => insert(
            HeaderName::try_from(name.as_str()).map_err(|_| unfit())?,
            credential,
        ),
        CredentialSlot::Query(name) => {
            refuse_parameter(path, name)?;
            path.push(if path.contains('?') { '&' } else { '?' });
            percent_encode(name, path);
            path.push('=');
            percent_encode(credential, path);
            Ok(())
        }
    }
}

/// Refuses a path that sets the credential's own parameter: the upstream could prefer the guest's value.
fn refuse_parameter(path: &str, name: &str) -> Result<(), DestinationError> {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let taken = query.split(['&', ';']).any(|pair| {
        let key = pair.split('=').next().unwrap_or_default();
        http_rules::percent_decode(key).is_none_or(|key| key.eq_ignore_ascii_case(name.as_bytes()))
    });
    if taken {
        return Err(DestinationError::Path("sets the credential's parameter"));
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use weir_storage::secrets::Secret;

    use super::*;

    fn asked(path: &str, headers: &[(&str, &str)]) -> HttpRequest {
        HttpRequest {
            method: "POST".into(),
            path: path.into(),
            headers: headers.iter().map(|&(n, v)| (n.into(), v.into())).collect(),
            body: vec![BodyPart::Bytes(b"{}".to_vec())],
        }
    }

    /// An adapter that may use everything that a description can name.
    fn described(slot: &CredentialSlot, headers: &[&str]) -> Description {
        Description {
            name: "test".into(),
            version: "1".into(),
            dialect: "test".into(),
            credential: slot.clone(),
            capabilities: vec!["chat".into()],
            options: Vec::new(),
            request_headers: headers.iter().map(|name| name.to_lowercase()).collect(),
            response_headers: Vec::new(),
            path_prefixes: vec!["/".into()],
        }
    }

    fn uri(path: &str, slot: &CredentialSlot) -> Result<String, DestinationError> {
        let base = BaseUrl::parse("https://api.example.com/v1/").unwrap();
        let key = Secret::new("k&y=1".into());
        let asked = asked(path, &[]);
        build(
            Some(&base),
            slot,
            &described(slot, &[]),
            Some(&Authorization::Fixed(&key)),
            asked,
            HostParts::default(),
        )
        .map(|request| request.uri().to_string())
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
        assert!(uri(&format!("/{}", "x".repeat(8 << 10)), &CredentialSlot::None).is_err());
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
            ("traceparent", "x"),
            ("tracestate", "x"),
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
            let built = build(
                Some(&base),
                &slot,
                &described(&slot, &[name]),
                None,
                asked("/x", &[(name, value)]),
                HostParts::default(),
            );
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
        let made = |slot| {
            let asked = asked("/x", &[]);
            build(
                Some(&base),
                &slot,
                &described(&slot, &[]),
                Some(&Authorization::Fixed(&key)),
                asked,
                HostParts::default(),
            )
            .unwrap()
        };
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
    fn headers_and_paths_that_are_not_described_are_refused() {
        let base = BaseUrl::parse("https://api.example.com").unwrap();
        let description = Description {
            path_prefixes: vec!["/v1/chat".into()],
            ..described(&CredentialSlot::None, &["x-known"])
        };
        let built = |path, headers| {
            build(
                Some(&base),
                &description.credential,
                &description,
                None,
                asked(path, headers),
                HostParts::default(),
            )
            .map(drop)
        };
        assert_eq!(built("/v1/chat/completions", &[("X-Known", "1")]), Ok(()));
        assert_eq!(
            built("/v1/chat", &[("x-other", "1")]),
            Err(DestinationError::Header("x-other".into()))
        );
        assert!(matches!(
            built("/v1/models", &[]),
            Err(DestinationError::Path(_))
        ));
    }

    #[test]
    fn no_attachment_ends_the_part_of_a_form_that_it_stands_in() {
        let base = BaseUrl::parse("https://api.example.com").unwrap();
        let description = described(&CredentialSlot::None, &["content-type"]);
        let built = |content_type, data: &'static [u8], part| {
            let asked = HttpRequest {
                body: vec![part],
                ..asked("/x", &[("content-type", content_type)])
            };
            let attachment = Attachment {
                media_type: "image/png".into(),
                data: Bytes::from_static(data),
            };
            build(
                Some(&base),
                &description.credential,
                &description,
                None,
                asked,
                HostParts {
                    attachments: &[attachment],
                    texts: &[],
                },
            )
            .map(drop)
        };
        let attached = || BodyPart::Attached(0);
        for content_type in [
            "multipart/form-data; boundary=b-1-",
            "Multipart/Form-Data;charset=x; Boundary=\"b-1-\"",
        ] {
            let ends = built(content_type, b"\x89\r\n--b-1-\r\n", attached());
            assert_eq!(ends, Err(DestinationError::Boundary));
            assert_eq!(built(content_type, b"\x89--b-2-", attached()), Ok(()));
            // Base64 cannot contain a boundary.
            let encoded = built(content_type, b"b-1-", BodyPart::Base64Of(0));
            assert_eq!(encoded, Ok(()));
        }
        assert_eq!(built("image/png", b"b-1-", attached()), Ok(()));
        for without in ["multipart/form-data", "multipart/form-data; boundary="] {
            let refused = built(without, b"x", attached());
            assert_eq!(
                refused,
                Err(DestinationError::Header("content-type".into()))
            );
        }
    }

    #[test]
    fn attachments_are_put_where_the_adapter_wants_them() {
        let attachment = |data: &'static [u8]| Attachment {
            media_type: "image/png".into(),
            data: Bytes::from_static(data),
        };
        let attachments = [attachment(b"\x00\xffab"), attachment(b"plain")];
        let text = |text: &str| BodyPart::Bytes(text.as_bytes().to_vec());
        let parts = vec![
            text("{\"a\":\""),
            BodyPart::Base64Of(0),
            text("\",\"b\":\""),
            BodyPart::Attached(1),
            text("\"}"),
        ];
        let with = |attachments| HostParts {
            attachments,
            texts: &[],
        };
        let body = put_together(parts, with(&attachments)).unwrap();
        assert_eq!(body, "{\"a\":\"AP9hYg==\",\"b\":\"plain\"}");
        assert_eq!(
            put_together(vec![BodyPart::Base64Of(2)], with(&attachments)),
            Err(DestinationError::Attachment(2))
        );
        let large = [Attachment {
            media_type: "image/png".into(),
            data: Bytes::from(vec![0; 1 << 20]),
        }];
        assert_eq!(
            put_together(vec![BodyPart::Attached(0); 65], with(&large)),
            Err(DestinationError::TooLarge)
        );
    }

    #[test]
    fn texts_follow_the_attachments_and_are_escaped() {
        let attachments = [Attachment {
            media_type: "image/png".into(),
            data: Bytes::from_static(b"x"),
        }];
        let host_parts = HostParts {
            attachments: &attachments,
            texts: &["a \"b\"\n", "c"],
        };
        let attached = |indexes: &[u32]| {
            let parts = indexes.iter().map(|index| BodyPart::Attached(*index));
            put_together(parts.collect(), host_parts)
        };
        assert_eq!(
            attached(&[1, 0, 2, 1]).unwrap(),
            "a \\\"b\\\"\\nxca \\\"b\\\"\\n"
        );
        for missing in [3, u32::MAX] {
            let refused = Err(DestinationError::Attachment(missing));
            assert_eq!(attached(&[missing]), refused);
        }
        // A text is not binary data.
        assert_eq!(
            put_together(vec![BodyPart::Base64Of(1)], host_parts),
            Err(DestinationError::Attachment(1))
        );
        let long = "\u{1}".repeat(1 << 20);
        let many = HostParts {
            attachments: &[],
            texts: &[&long],
        };
        assert_eq!(
            put_together(vec![BodyPart::Attached(0); 1_000_000], many),
            Err(DestinationError::TooLarge)
        );
    }

    #[test]
    fn no_form_has_a_text_of_json() {
        let base = BaseUrl::parse("https://api.example.com").unwrap();
        let description = described(&CredentialSlot::None, &["content-type"]);
        let content_type = ("content-type", "multipart/form-data; boundary=b-1-");
        let built = build(
            Some(&base),
            &description.credential,
            &description,
            None,
            HttpRequest {
                body: vec![BodyPart::Attached(0)],
                ..asked("/x", &[content_type])
            },
            HostParts {
                attachments: &[],
                texts: &["b-1-"],
            },
        );
        assert_eq!(built.map(drop), Err(DestinationError::TextInForm));
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
