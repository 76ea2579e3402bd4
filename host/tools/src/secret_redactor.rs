//! Redaction of credentials in tools' responses and records.
//!
//! A server may echo a request's headers, and thereby reveal the host's credential to a guest, a model or a log. A
//! response is complete here, so this module finds more spellings than the redaction of streams
//! ([`weir_upstream::redact`]).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use memchr::memmem::Finder;
use weir_upstream::redact::redact_bytes;

/// The minimum bytes of a secret's beginning at the end of a truncated body that are redacted.
const LEAST_BEGINNING: usize = 6;

/// Replaces each occurrence of a secret by asterisks: plain, with any characters escaped as in URLs, JSON and HTML, and
/// in base64 and hexadecimal digits.
#[derive(Default)]
pub struct SecretRedactor {
    secrets: Vec<String>,
    encoded: Vec<Finder<'static>>,
}

impl SecretRedactor {
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let secrets = secrets.into_iter().map(str::to_owned);
        let mut secrets: Vec<_> = secrets
            .filter(|secret| secret.len() >= LEAST_BEGINNING)
            .collect();
        // Longer secrets come first, so that a secret that contains another one is redacted completely.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        let mut encoded: Vec<_> = secrets
            .iter()
            .flat_map(|secret| encodings(secret))
            .collect();
        encoded.sort_by_key(|encoding| std::cmp::Reverse(encoding.len()));
        let finders = encoded
            .iter()
            .map(|encoding| Finder::new(encoding).into_owned());
        Self {
            encoded: finders.collect(),
            secrets,
        }
    }

    /// Redacts secrets in bytes. If the bytes were truncated, it also redacts the beginning of a secret at their end.
    pub fn redact(&self, bytes: &mut [u8], are_cut: bool) {
        for secret in &self.secrets {
            redact_escaped(secret, bytes, are_cut);
        }
        for finder in &self.encoded {
            let encoding = finder.needle();
            redact_bytes(finder, bytes);
            if are_cut {
                let longest = bytes.len().min(encoding.len() - 1);
                let mut lengths = (LEAST_BEGINNING..=longest).rev();
                if let Some(length) = lengths.find(|length| bytes.ends_with(&encoding[..*length])) {
                    let begin = bytes.len() - length;
                    bytes[begin..].fill(b'*');
                }
            }
        }
    }

    /// Redacts secrets in a text. Complete occurrences are replaced by ASCII, so the result is valid UTF-8.
    pub fn redact_text(&self, text: String) -> String {
        let mut bytes = text.into_bytes();
        self.redact(&mut bytes, false);
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

/// Redacts a secret with any of its characters escaped.
fn redact_escaped(secret: &str, bytes: &mut [u8], are_cut: bool) {
    let first = secret.as_bytes()[0];
    let mut from = 0;
    let may_begin = |byte: &u8| *byte == first || matches!(byte, b'%' | b'\\' | b'&');
    while let Some(at) = bytes[from..].iter().position(may_begin) {
        let begin = from + at;
        from = begin + 1;
        let end = match agreement(&bytes[begin..], secret) {
            Agreement::Whole(length) => begin + length,
            Agreement::Beginning(length) if are_cut && length >= LEAST_BEGINNING => bytes.len(),
            _ => continue,
        };
        bytes[begin..end].fill(b'*');
        from = end;
    }
}

/// The extent of a match between bytes and a secret.
enum Agreement {
    /// The secret's length within the bytes.
    Whole(usize),
    /// The matched bytes, if the bytes end within the secret.
    Beginning(usize),
    /// No match.
    None,
}

/// Compares the start of bytes with a secret; each character may be plain, `%XX`, a JSON escape or an HTML reference.
fn agreement(bytes: &[u8], secret: &str) -> Agreement {
    let mut rest = bytes;
    for (place, character) in secret.char_indices() {
        match after(rest, character) {
            Some(after) => rest = after,
            None if could_be_cut(rest) => return Agreement::Beginning(place),
            None => return Agreement::None,
        }
    }
    Agreement::Whole(bytes.len() - rest.len())
}

fn after(bytes: &[u8], character: char) -> Option<&[u8]> {
    if let Some(rest) = after_json_escape(bytes, character) {
        return Some(rest);
    }
    if let Some(rest) = after_html_reference(bytes, character) {
        return Some(rest);
    }
    let mut buffer = [0; 4];
    let encoded = character.encode_utf8(&mut buffer).as_bytes();
    encoded.iter().try_fold(bytes, |rest, &byte| match rest {
        [b'%', high, low, rest @ ..] if hex(&[*high, *low]) == Some(byte.into()) => Some(rest),
        [b'+', rest @ ..] if byte == b' ' => Some(rest),
        [first, rest @ ..] if *first == byte => Some(rest),
        _ => None,
    })
}

/// Returns the bytes after a character's HTML reference: `&#x41;`, `&#65;`, `&amp;`. Browsers accept numbers without
/// the semicolon, too.
fn after_html_reference(bytes: &[u8], character: char) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(b"&")?;
    if let Some(number) = rest.strip_prefix(b"#") {
        let (digits, radix) = match number {
            [b'x' | b'X', digits @ ..] => (digits, 16),
            digits => (digits, 10),
        };
        let is_digit = |byte: &u8| char::from(*byte).is_digit(radix);
        let length = digits.iter().take_while(|byte| is_digit(byte)).count();
        let (digits, rest) = digits.split_at(length.min(MAX_REFERENCE_BYTES));
        let digits = str::from_utf8(digits).ok()?;
        let referred = u32::from_str_radix(digits, radix).ok()?;
        let rest = rest.strip_prefix(b";").unwrap_or(rest);
        return (referred == u32::from(character)).then_some(rest);
    }
    let (_, names) = REFERENCES.iter().find(|(own, _)| *own == character)?;
    names.iter().find_map(|name| {
        let rest = rest.strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b";")
    })
}

/// The maximum bytes of a reference: a name, or a number with many leading zeros.
const MAX_REFERENCE_BYTES: usize = 24;

/// HTML's names of visible ASCII characters (HTML Living Standard, 13.5 Named character references).
const REFERENCES: [(char, &[&str]); 32] = [
    ('!', &["excl"]),
    ('"', &["quot", "QUOT"]),
    ('#', &["num"]),
    ('$', &["dollar"]),
    ('%', &["percnt"]),
    ('&', &["amp", "AMP"]),
    ('\'', &["apos"]),
    ('(', &["lpar"]),
    (')', &["rpar"]),
    ('*', &["ast", "midast"]),
    ('+', &["plus"]),
    (',', &["comma"]),
    ('.', &["period"]),
    ('/', &["sol"]),
    (':', &["colon"]),
    (';', &["semi"]),
    ('<', &["lt", "LT"]),
    ('=', &["equals"]),
    ('>', &["gt", "GT"]),
    ('?', &["quest"]),
    ('@', &["commat"]),
    ('[', &["lsqb", "lbrack"]),
    ('\\', &["bsol"]),
    (']', &["rsqb", "rbrack"]),
    ('^', &["Hat"]),
    ('_', &["lowbar", "UnderBar"]),
    ('`', &["grave", "DiacriticalGrave"]),
    ('{', &["lcub", "lbrace"]),
    ('|', &["verbar", "vert", "VerticalLine"]),
    ('}', &["rcub", "rbrace"]),
    ('\u{a0}', &["nbsp", "NonBreakingSpace"]),
    ('\n', &["NewLine"]),
];

fn after_json_escape(bytes: &[u8], character: char) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(b"\\")?;
    let (&escape, rest) = rest.split_first()?;
    let unescaped = match escape {
        b'u' => {
            let mut units = [0; 2];
            let units = character.encode_utf16(&mut units);
            let (first, others) = units.split_first()?;
            let mut rest = after_unit(rest, *first)?;
            for unit in others {
                rest = after_unit(rest.strip_prefix(b"\\u")?, *unit)?;
            }
            return Some(rest);
        }
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        other => char::from(other),
    };
    (unescaped == character).then_some(rest)
}

fn after_unit(bytes: &[u8], unit: u16) -> Option<&[u8]> {
    let (digits, rest) = bytes.split_at_checked(4)?;
    (hex(digits) == Some(unit.into())).then_some(rest)
}

fn hex(digits: &[u8]) -> Option<u32> {
    let mut digits = digits.iter().map(|&digit| char::from(digit).to_digit(16));
    digits.try_fold(0, |number, digit| Some(number * 16 + digit?))
}

/// Whether bytes end in the middle of an escaped character.
fn could_be_cut(bytes: &[u8]) -> bool {
    match bytes.first() {
        None => true,
        Some(b'%') => bytes.len() < 3,
        Some(b'\\') => bytes.len() < 6,
        Some(b'&') => bytes.len() < MAX_REFERENCE_BYTES && !bytes.contains(&b';'),
        Some(first) => !first.is_ascii() && bytes.len() < 4,
    }
}

/// Returns a secret's base64 and hexadecimal forms.
fn encodings(secret: &str) -> Vec<String> {
    let bytes = secret.as_bytes();
    let in_hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut encodings = vec![in_hex.to_ascii_uppercase(), in_hex];
    // Within a longer text, base64 depends on the number of preceding bytes, and the digits at its ends depend on the
    // neighbours.
    for before in 0..3 {
        let mut padded = vec![0; before];
        padded.extend_from_slice(bytes);
        let from = (8 * before).div_ceil(6);
        let to = 8 * padded.len() / 6;
        for engine in [STANDARD, URL_SAFE] {
            encodings.extend(engine.encode(&padded).get(from..to).map(str::to_owned));
        }
    }
    encodings.retain(|encoding| encoding.len() >= LEAST_BEGINNING);
    encodings.sort();
    encodings.dedup();
    encodings
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-\"a/b\" ü+0123456789";

    #[test]
    fn a_secret_is_blotted_out_however_it_is_spelled() {
        let redactor = SecretRedactor::new([SECRET]);
        let all_escaped =
            |escape: fn(char) -> String| SECRET.chars().map(escape).collect::<String>();
        let percent = |byte: u8| format!("%{byte:02X}");
        let mut spellings = encodings(SECRET);
        spellings.extend([
            SECRET.to_owned(),
            serde_json::Value::from(SECRET).to_string(),
            SECRET.replace('/', "\\/"),
            SECRET.replace(' ', "+").replace('"', "%22"),
            // No standard requires this form, but all readers accept it.
            SECRET.bytes().map(percent).collect(),
            SECRET
                .bytes()
                .map(|byte| percent(byte).to_lowercase())
                .collect(),
            SECRET.replace('-', "%2D").replace('0', "%30"),
            all_escaped(|character| format!("\\u{:04x}", u32::from(character))),
            all_escaped(|character| format!("\\u{:04X}", u32::from(character))),
            SECRET.replace('s', "\\u0073").replace('1', "%31"),
            all_escaped(|character| format!("&#{};", u32::from(character))),
            all_escaped(|character| format!("&#x{:x};", u32::from(character))),
            all_escaped(|character| format!("&#X{:04X};", u32::from(character))),
            all_escaped(|character| format!("&#00{}", u32::from(character))),
            SECRET
                .replace('"', "&quot;")
                .replace('/', "&sol;")
                .replace('+', "&plus;"),
            SECRET
                .replace('s', "&#115;")
                .replace('-', "%2d")
                .replace('"', "\\\""),
        ]);
        for text in &spellings {
            let before = format!("before {text} after");
            let redacted = redactor.redact_text(before.clone());
            assert!(
                redacted.starts_with("before ") && redacted.ends_with(" after"),
                "{redacted}"
            );
            assert!(
                redacted.contains("*****") && !redacted.contains("567"),
                "{redacted}"
            );
            assert_eq!(redacted.len(), before.len());
        }
        for other in [
            "%zz%7",
            "\\u00",
            "\\ud83d\\u",
            "sk-\"a/b\" ü+012345678_",
            "%",
            "\\",
            "&",
            "&#;",
            "&#x",
            "&amp;&#115;&nosuch;",
            "&#99999999999999999999999999;",
        ] {
            assert_eq!(redactor.redact_text(other.to_owned()), other);
        }
        let pair = SecretRedactor::new(["smile \u{1f600} secret"]);
        let escaped = r#"{"a":"smile \ud83d\ude00 secret"}"#;
        assert_eq!(
            pair.redact_text(escaped.to_owned()),
            r#"{"a":"*************************"}"#
        );
        for before in ["", "a", "ab", "abc", "user:"] {
            let encoded = STANDARD.encode(format!("{before}{SECRET}{before}"));
            let redacted = redactor.redact_text(encoded.clone());
            let shown = redacted.bytes().filter(|&byte| byte != b'*').count();
            // The other digits belong to the neighbours, or to at most one byte at either end.
            assert!(
                shown <= 4 * before.len() / 3 * 2 + 8,
                "{encoded}: {redacted}"
            );
        }
    }

    #[test]
    fn of_cut_bytes_the_beginning_of_a_secret_is_blotted_out_too() {
        let redactor = SecretRedactor::new(["sk-0123456789abcdef"]);
        let mut bytes = *b"{\"echo\":\"sk-01234567";
        redactor.redact(&mut bytes, true);
        assert_eq!(&bytes, b"{\"echo\":\"***********");
        for (cut, shown) in [
            ("x sk-01234567%3", "x "),
            ("x sk-0123\\u003", "x "),
            ("x sk-01%", "x sk-01%"),
            ("x sk-01234567&#x3", "x "),
            ("x &#115;k-01234&#5", "x "),
        ] {
            let mut bytes = cut.as_bytes().to_vec();
            redactor.redact(&mut bytes, true);
            assert_eq!(String::from_utf8_lossy(&bytes).trim_end_matches('*'), shown);
        }
        let mut whole = *b"{\"echo\":\"sk-01234567";
        redactor.redact(&mut whole, false);
        assert!(whole.ends_with(b"sk-01234567"));
    }

    #[test]
    fn without_a_secret_everything_stays() {
        let text = "nothing to hide";
        assert_eq!(SecretRedactor::new([]).redact_text(text.to_owned()), text);
    }
}
