//! Redaction of a secret in a stream of bytes, across the stream's pieces.
//!
//! An upstream that echoes the request's headers, or an error that quotes the key, would show an adapter the
//! credential that the host hides from it. Every response of an upstream therefore passes through here first.

use bytes::Bytes;
use memchr::memmem::Finder;
use serde_json::Value;

use crate::percent::percent_encode;

/// Minimum length of a redacted secret in bytes: a shorter secret may be a word of a legitimate response.
pub const MIN_BYTES: usize = 16;

/// Replaces each occurrence of a secret by as many asterisks, also in its URL and JSON escapes.
pub struct Redactor(Vec<SpellingRedactor>);

impl Redactor {
    /// A redactor of this secret; without one, it passes all bytes.
    pub fn new(secret: Option<&str>) -> Self {
        let secret = secret.unwrap_or_default();
        let mut in_url = String::new();
        percent_encode(secret, &mut in_url);
        let in_json = Value::from(secret).to_string();
        let mut spellings = vec![
            secret.to_owned(),
            in_url,
            in_json.trim_matches('"').to_owned(),
            in_json.trim_matches('"').replace('/', "\\/"),
        ];
        spellings.retain(|spelling| !spelling.is_empty());
        spellings.sort();
        spellings.dedup();
        Self(
            spellings
                .iter()
                .map(|spelling| SpellingRedactor::new(spelling))
                .collect(),
        )
    }

    /// Returns the bytes that can be passed on now. Bytes that may be the secret's beginning are held back.
    pub fn push(&mut self, bytes: Bytes) -> Bytes {
        self.0
            .iter_mut()
            .fold(bytes, |bytes, redactor| redactor.push(bytes))
    }

    /// Returns the held bytes, at the end of the stream.
    pub fn finish(&mut self) -> Bytes {
        let mut held = Bytes::new();
        for redactor in &mut self.0 {
            let mut all = redactor.push(held).to_vec();
            all.extend_from_slice(&redactor.finish());
            held = all.into();
        }
        held
    }
}

/// The redactor of one spelling.
struct SpellingRedactor {
    spelling: Finder<'static>,
    /// The end of the bytes so far, if the secret could begin there.
    held: Vec<u8>,
}

impl SpellingRedactor {
    fn new(spelling: &str) -> Self {
        Self {
            spelling: Finder::new(spelling.as_bytes()).into_owned(),
            held: Vec::new(),
        }
    }

    fn push(&mut self, bytes: Bytes) -> Bytes {
        let spelling = self.spelling.needle();
        if self.held.is_empty()
            && overlap(&bytes, spelling) == 0
            && self.spelling.find(&bytes).is_none()
        {
            return bytes;
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(&bytes);
        redact_bytes(&self.spelling, &mut all);
        let held = overlap(&all, spelling);
        self.held = all.split_off(all.len() - held);
        all.into()
    }

    fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }
}

/// Replaces each occurrence of a secret's spelling by as many asterisks.
pub fn redact_bytes(finder: &Finder<'_>, bytes: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = finder.find(&bytes[from..]) {
        let end = from + at + finder.needle().len();
        bytes[from + at..end].fill(b'*');
        from = end;
    }
}

/// Returns the length of the longest proper suffix of `bytes` that is a prefix of `secret`.
fn overlap(bytes: &[u8], secret: &[u8]) -> usize {
    let longest = bytes.len().min(secret.len() - 1);
    (1..=longest)
        .rev()
        .find(|&length| secret.starts_with(&bytes[bytes.len() - length..]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_blotted_out_wherever_it_is_cut() {
        let text = b"ab sk-sk-123 sk-sk-sk-123 sk-12 sk-sk-12";
        let want = b"ab ********* sk-********* sk-12 sk-sk-12";
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut redactor = Redactor::new(Some("sk-sk-123"));
                let mut seen = Vec::new();
                for piece in [&text[..first], &text[first..second], &text[second..]] {
                    seen.extend_from_slice(&redactor.push(Bytes::copy_from_slice(piece)));
                }
                seen.extend_from_slice(&redactor.finish());
                assert_eq!(seen, want, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn a_secret_is_blotted_out_as_urls_and_json_write_it() {
        let mut redactor = Redactor::new(Some("k&y/\"1\""));
        let text = r#"?key=k%26y%2F%221%22 "k&y/\"1\"" "k&y\/\"1\"" k&y/"1""#;
        let mut seen = redactor.push(Bytes::from_static(text.as_bytes())).to_vec();
        seen.extend_from_slice(&redactor.finish());
        let seen = String::from_utf8_lossy(&seen);
        assert!(!seen.contains("k&y") && !seen.contains("k%26y"), "{seen}");
        assert_eq!(seen.len(), text.len());
        assert_eq!(
            Redactor::new(Some("sk-plain_123")).0.len(),
            1,
            "one spelling is all"
        );
    }

    #[test]
    fn without_a_secret_everything_passes() {
        let mut redactor = Redactor::new(None);
        assert_eq!(redactor.push(Bytes::from_static(b"x")), "x");
        assert_eq!(redactor.finish(), "");
    }
}
