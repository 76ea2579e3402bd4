//! An adapter's description: checked once, at load, and stored as text beside its bytes, so that every node can
//! compare it with the description that it reads.

use http::header::{self, HeaderName};
use serde_json::{Value, json};

use super::bindings::adapter::{CredentialSlot, Description};
use super::http_rules;
use super::kinds::WorkKind;
use crate::printable::printable;
use crate::words::{MAX_WORD_BYTES, check_word, check_words, is_word};

impl Description {
    /// Returns whether the adapter serves a kind of work.
    pub fn serves(&self, kind: WorkKind) -> bool {
        self.claims(kind.name())
    }

    /// Returns whether the adapter's capabilities include this one.
    pub fn claims(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|named| named == capability)
    }
}

/// Response headers that the host hides from every adapter.
const HIDDEN: [HeaderName; 6] = [
    header::SET_COOKIE,
    header::WWW_AUTHENTICATE,
    header::PROXY_AUTHENTICATE,
    header::AUTHORIZATION,
    header::COOKIE,
    header::CONTENT_ENCODING,
];

/// Checks that a description is well-formed and claims nothing reserved to the host.
pub(super) fn check(description: &Description) -> Result<(), String> {
    let Description {
        name,
        version,
        dialect,
        credential,
        capabilities,
        options,
        request_headers,
        response_headers,
        path_prefixes,
    } = description;
    for (field, text) in [("name", name), ("version", version), ("dialect", dialect)] {
        check_word(field, text)?;
    }
    for (field, list) in [
        ("capabilities", capabilities),
        ("options", options),
        ("request headers", request_headers),
        ("response headers", response_headers),
        ("path prefixes", path_prefixes),
    ] {
        check_words(field, list)?;
    }
    let kinds = WorkKind::ALL.iter().map(|kind| kind.name());
    let kinds: Vec<_> = kinds.collect();
    if !capabilities
        .iter()
        .any(|named| kinds.contains(&named.as_str()))
    {
        let kinds = kinds.join(", ");
        return Err(format!("its capabilities include none of {kinds}"));
    }
    for name in request_headers {
        let parsed = HeaderName::from_lowercase(name.as_bytes());
        if !parsed.is_ok_and(|name| http_rules::is_settable(&name, credential)) {
            return Err(format!(
                "the request header {name:?} is not an adapter's to set"
            ));
        }
    }
    for pattern in response_headers {
        if !is_readable(pattern) {
            return Err(format!(
                "the response header {pattern:?} is not an adapter's to read"
            ));
        }
    }
    for prefix in path_prefixes {
        http_rules::check_bytes(prefix)
            .map_err(|why| format!("the path prefix {prefix:?} {why}"))?;
    }
    check_credential(credential)
}

fn is_readable(pattern: &str) -> bool {
    let stem = pattern.strip_suffix('*').unwrap_or(pattern);
    // A pattern that matches every header would be no filter.
    let is_legal = HeaderName::from_lowercase(stem.as_bytes()).is_ok();
    is_legal && !HIDDEN.iter().any(|hidden| matches(pattern, hidden))
}

/// Checks the place of a credential in requests.
///
/// # Errors
///
/// The reason for which requests cannot have it there.
pub fn check_credential(slot: &CredentialSlot) -> Result<(), String> {
    match slot {
        CredentialSlot::Bearer | CredentialSlot::None => Ok(()),
        CredentialSlot::Header(name) => match HeaderName::try_from(name.as_str()) {
            Ok(name) if !http_rules::is_framing(&name) => Ok(()),
            _ => Err(format!(
                "its credential cannot travel in a header named {:?}",
                printable(name, MAX_WORD_BYTES)
            )),
        },
        CredentialSlot::Query(name) if is_word(name) => Ok(()),
        CredentialSlot::Query(_) => Err("its credential's query parameter needs a name".into()),
        CredentialSlot::HostSigned(scheme) => Err(format!(
            "it needs requests signed by {:?}, which this version cannot do",
            printable(scheme, MAX_WORD_BYTES)
        )),
    }
}

/// Returns whether a description names a header, in full or by its prefix.
pub fn asks_for(description: &Description, name: &HeaderName) -> bool {
    let patterns = &description.response_headers;
    patterns.iter().any(|pattern| matches(pattern, name))
}

fn matches(pattern: &str, name: &HeaderName) -> bool {
    match pattern.strip_suffix('*') {
        Some(stem) => name.as_str().starts_with(stem),
        None => name.as_str() == pattern,
    }
}

/// Returns a description as it is stored: equal descriptions have equal texts.
pub fn to_json(description: &Description) -> Value {
    let credential = match &description.credential {
        CredentialSlot::Bearer => json!("bearer"),
        CredentialSlot::None => json!("none"),
        CredentialSlot::Header(name) => json!({ "header": name }),
        CredentialSlot::Query(name) => json!({ "query": name }),
        CredentialSlot::HostSigned(scheme) => json!({ "host_signed": scheme }),
    };
    json!({
        "name": description.name,
        "version": description.version,
        "dialect": description.dialect,
        "credential": credential,
        "capabilities": description.capabilities,
        "options": description.options,
        "request_headers": description.request_headers,
        "response_headers": description.response_headers,
        "path_prefixes": description.path_prefixes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> Description {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Description {
            name: "some".into(),
            version: "1.0.0".into(),
            dialect: "some-chat".into(),
            credential: CredentialSlot::Header("x-api-key".into()),
            capabilities: words(&["chat", "telepathy"]),
            options: words(&["an-option"]),
            request_headers: words(&["content-type", "some-version"]),
            response_headers: words(&["x-ratelimit-*", "request-id"]),
            path_prefixes: words(&["/v1/messages"]),
        }
    }

    #[test]
    fn what_makes_sense_is_taken() {
        assert_eq!(check(&described()), Ok(()));
    }

    #[test]
    fn what_is_the_hosts_is_refused() {
        let refused = |change: fn(&mut Description)| {
            let mut description = described();
            change(&mut description);
            check(&description).expect_err("it is refused")
        };
        for header in [
            "host",
            "authorization",
            "x-api-key",
            "Upper",
            "a b",
            "cookie",
        ] {
            let mut description = described();
            description.request_headers = vec![header.into()];
            assert!(check(&description).is_err(), "{header}");
        }
        for header in ["set-cookie", "set-*", "*", "www-authenticate", "Upper"] {
            let mut description = described();
            description.response_headers = vec![header.into()];
            assert!(check(&description).is_err(), "{header}");
        }
        assert!(refused(|d| d.capabilities = vec!["telepathy".into()]).contains("none of"));
        assert!(refused(|d| d.path_prefixes = vec!["/../x".into()]).contains("dot segment"));
        assert!(refused(|d| d.dialect = String::new()).contains("dialect"));
        assert!(refused(|d| d.options = vec!["x".into(); 65]).contains("options"));
        assert!(refused(|d| d.credential = CredentialSlot::Header("host".into())).contains("host"));
    }

    #[test]
    fn headers_are_asked_for_by_name_or_beginning() {
        let name = |name: &'static str| HeaderName::from_static(name);
        assert!(asks_for(&described(), &name("x-ratelimit-remaining")));
        assert!(asks_for(&described(), &name("request-id")));
        assert!(!asks_for(&described(), &name("request-id-2")));
    }
}
