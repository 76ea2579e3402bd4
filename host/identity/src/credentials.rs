//! The credentials in the headers of a request, not checked yet.

use http::{HeaderMap, header};
use weir_dialects::gemini_generate::KEY_HEADER;

use super::api_key::{self, RawKey};

/// The header with a web user's attestation token.
pub(super) const ATTESTATION: &str = "x-identity-appcheck";

/// The headers for a key: of weir and Anthropic, and of Google. The first one that a request has counts.
const KEY_HEADERS: [&str; 2] = ["x-api-key", KEY_HEADER];

/// The credentials of a request.
pub(super) enum Credentials<'a> {
    None,
    Key(&'a str),
    Web {
        identity: &'a str,
        attestation: &'a str,
    },
    /// A bearer token without its attestation, or the reverse.
    Incomplete,
}

impl<'a> Credentials<'a> {
    /// The credentials of a request, and the alternative if they are invalid. Clients may send weir's key in either
    /// `X-Api-Key` (or `X-Goog-Api-Key`) or `Authorization`, and another service's token in the other header. A web user's tokens have no
    /// alternative.
    pub(super) fn of(headers: &'a HeaderMap) -> (Self, Option<Self>) {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let attestation = text(ATTESTATION);
        let in_authorization = match (bearer(headers), attestation) {
            (Some(identity), Some(attestation)) => Self::Web {
                identity,
                attestation,
            },
            // A token of three parts is not a key, so its attestation is missing.
            (Some(token), None) if token.contains('.') => Self::Incomplete,
            (Some(key), None) => Self::Key(key),
            (None, Some(_)) => Self::Incomplete,
            (None, None) => Self::None,
        };
        let key = KEY_HEADERS.into_iter().find_map(text);
        let (Some(key), bearer) = (key, bearer(headers)) else {
            return (in_authorization, None);
        };
        let is_key = |text: &str| RawKey::parse(text).is_some();
        match bearer {
            Some(bearer) if bearer != key => match (is_key(key), is_key(bearer)) {
                (true, true) => (Self::Key(key), Some(Self::Key(bearer))),
                (false, true) => (Self::Key(bearer), None),
                (true, false) => (Self::Key(key), None),
                (false, false) => (Self::Incomplete, None),
            },
            _ => (Self::Key(key), None),
        }
    }
}

/// Whether a request may come from another service, at endpoints for users and services: it has a bearer token that is
/// not an API key, and no attestation token.
pub fn may_be_service(headers: &HeaderMap) -> bool {
    let is_users = |name: &str| headers.contains_key(name);
    !is_users(ATTESTATION)
        && !KEY_HEADERS.into_iter().any(is_users)
        && bearer(headers).is_some_and(|token| !token.starts_with(api_key::PREFIX))
}

/// The bearer token of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().unwrap_or("");
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
