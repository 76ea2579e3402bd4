//! Blots credentials out of what comes back, and of what is noted.
//!
//! A server that echoes a request's headers would show a guest, a model and a log the credential that the host keeps from
//! them all. An answer is here as a whole, so that more spellings are looked for than in a stream
//! ([`crate::inference::redact`]).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use memchr::memmem::Finder;
use serde_json::Value;

use crate::inference::redact::blot_out;

/// Bytes of the shortest end of a cut body that is blotted out for being a secret's beginning.
const LEAST_BEGINNING: usize = 6;

/// Replaces each occurrence of a secret by as many asterisks: as it is, and as URLs, JSON, base64 and hexadecimal digits
/// write it.
#[derive(Default)]
pub(super) struct Blotter(Vec<Finder<'static>>);

impl Blotter {
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut spellings: Vec<String> = secrets.into_iter().flat_map(spellings).collect();
        // The longer first, so that what one is part of another is blotted out as a whole.
        spellings.sort_by_key(|spelling| std::cmp::Reverse(spelling.len()));
        spellings.dedup();
        let finders = spellings
            .iter()
            .map(|spelling| Finder::new(spelling).into_owned());
        Self(finders.collect())
    }

    /// Blots secrets out of bytes. Where these were cut, also the beginning of a secret at their end.
    pub(super) fn blot(&self, bytes: &mut [u8], are_cut: bool) {
        for finder in &self.0 {
            let spelling = finder.needle();
            blot_out(finder, bytes);
            if are_cut {
                let longest = bytes.len().min(spelling.len() - 1);
                let mut lengths = (LEAST_BEGINNING..=longest).rev();
                if let Some(length) = lengths.find(|length| bytes.ends_with(&spelling[..*length])) {
                    let begin = bytes.len() - length;
                    bytes[begin..].fill(b'*');
                }
            }
        }
    }

    /// The same in a text. Asterisks for whole occurrences of texts leave a text.
    pub(super) fn blot_text(&self, text: String) -> String {
        let mut bytes = text.into_bytes();
        self.blot(&mut bytes, false);
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

fn spellings(secret: &str) -> Vec<String> {
    let bytes = secret.as_bytes();
    let in_json = Value::from(secret).to_string();
    let in_json = in_json.trim_matches('"').to_owned();
    let in_url = |escape: fn(u8) -> String| -> String {
        let encoded = bytes.iter().map(|&byte| match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                char::from(byte).to_string()
            }
            byte => escape(byte),
        });
        encoded.collect()
    };
    let upper = in_url(|byte| format!("%{byte:02X}"));
    let lower = in_url(|byte| format!("%{byte:02x}"));
    let in_hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut spellings = vec![
        secret.to_owned(),
        upper.replace("%20", "+"),
        upper,
        lower,
        in_json.replace('/', "\\/"),
        in_json,
        in_hex.to_ascii_uppercase(),
        in_hex,
    ];
    // Within a longer text, base64 depends on how many bytes stand before it; the digits at its ends on the neighbours.
    for before in 0..3 {
        let mut padded = vec![0; before];
        padded.extend_from_slice(bytes);
        let from = (8 * before).div_ceil(6);
        let to = 8 * padded.len() / 6;
        for engine in [STANDARD, URL_SAFE] {
            spellings.extend(engine.encode(&padded).get(from..to).map(str::to_owned));
        }
    }
    spellings.retain(|spelling| spelling.len() >= LEAST_BEGINNING);
    spellings.sort();
    spellings.dedup();
    spellings
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-\"a/b\" ü+0123456789";

    #[test]
    fn a_secret_is_blotted_out_however_it_is_spelled() {
        let blotter = Blotter::new([SECRET]);
        let json = Value::from(SECRET).to_string();
        let all = spellings(SECRET);
        for text in all.iter().chain([&json]) {
            let before = format!("before {text} after");
            let blotted = blotter.blot_text(before.clone());
            assert!(
                blotted.starts_with("before ") && blotted.ends_with(" after"),
                "{blotted}"
            );
            assert!(blotted.contains("*****"), "{blotted}");
            assert_eq!(blotted.len(), before.len());
        }
        for before in ["", "a", "ab", "abc", "user:"] {
            let encoded = STANDARD.encode(format!("{before}{SECRET}{before}"));
            let blotted = blotter.blot_text(encoded.clone());
            let shown = blotted.bytes().filter(|&byte| byte != b'*').count();
            // The rest is of the neighbours, or of at most one byte at either end.
            assert!(
                shown <= 4 * before.len() / 3 * 2 + 8,
                "{encoded}: {blotted}"
            );
        }
    }

    #[test]
    fn of_cut_bytes_the_beginning_of_a_secret_is_blotted_out_too() {
        let blotter = Blotter::new(["sk-0123456789abcdef"]);
        let mut bytes = *b"{\"echo\":\"sk-01234567";
        blotter.blot(&mut bytes, true);
        assert_eq!(&bytes, b"{\"echo\":\"***********");
        let mut whole = *b"{\"echo\":\"sk-01234567";
        blotter.blot(&mut whole, false);
        assert!(whole.ends_with(b"sk-01234567"));
    }

    #[test]
    fn without_a_secret_everything_stays() {
        let text = "nothing to hide";
        assert_eq!(Blotter::new([]).blot_text(text.to_owned()), text);
    }
}
