//! Rules for an adapter's HTTP requests: paths that stay below the base URL, headers that an adapter may set.

use http::header::{self, HeaderName};

use super::bindings::adapter::CredentialSlot;

/// Maximum length of path and query, in bytes.
const MAX_PATH_BYTES: usize = 8 << 10;

/// Checks the bytes of a path and query, and that it begins with one of the prefixes.
///
/// # Errors
///
/// Returns the fault as a predicate.
pub fn check_path(path: &str, prefixes: &[String]) -> Result<(), &'static str> {
    check_bytes(path)?;
    if !prefixes.iter().any(|prefix| path.starts_with(&**prefix)) {
        return Err("begins with none of the prefixes that the adapter describes");
    }
    Ok(())
}

/// Checks only the bytes of a path and query.
///
/// # Errors
///
/// Returns the fault as a predicate.
pub fn check_bytes(path: &str) -> Result<(), &'static str> {
    let refuse = Err;
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
    // Decoded first, since an upstream may decode `%2e%2e` and `..%2f`.
    for segment in decoded[1..].split(|&byte| byte == b'/') {
        // Some servers drop path parameters and read `..;x` as `..`.
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

/// Returns whether an adapter with this credential slot may set a header.
pub fn is_settable(name: &HeaderName, slot: &CredentialSlot) -> bool {
    let is_slot =
        matches!(slot, CredentialSlot::Header(own) if own.eq_ignore_ascii_case(name.as_str()));
    !is_slot && name != header::AUTHORIZATION && !is_framing(name)
}

/// Returns whether a header frames or routes a message, or authenticates its sender: a guest never sets such a
/// header.
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
        // The host would have to inflate a compressed response, and bound it.
        header::ACCEPT_ENCODING,
        header::CONTENT_ENCODING,
        header::SET_COOKIE,
    ];
    // Headers that some servers use as the path, the method, the client or the originating request, in place of the
    // request line.
    const REWRITING: [&str; 13] = [
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
        // The host alone assigns requests to traces.
        "traceparent",
        "tracestate",
        "baggage",
    ];
    let text = name.as_str();
    OWNED.contains(name)
        || REWRITING.contains(&text)
        || text.starts_with("proxy-")
        || text.starts_with("x-forwarded-")
        || text.starts_with("x-real-")
}

fn has_dot_segment(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/' || byte == b'\\')
        .any(|segment| matches!(segment, b"." | b".."))
}

/// Decodes percent escapes; `None` if an escape is broken.
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
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
