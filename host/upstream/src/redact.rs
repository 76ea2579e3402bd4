//! Redaction of a secret in a stream of bytes, across the stream's pieces; and of credentials of well-known shapes in a
//! text.
//!
//! An upstream that echoes the request's headers, or an error that quotes the key, would show an adapter the
//! credential that the host hides from it. Every response of an upstream therefore passes through here first.
//!
//! A text of a client may have credentials that weir does not know: [`redact_shapes`] finds those that have a prefix or
//! a frame of their own.

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

/// Credentials by their prefix, with the minimum of characters behind it. The sources are the vendors' documentations,
/// and the list of patterns of GitHub's secret scanning.
const PREFIXES: [(&str, usize); 31] = [
    // Keys of weir.
    ("inf_", 40),
    // Keys of providers: OpenAI, Anthropic, OpenRouter and DeepSeek; Groq; xAI; Perplexity; Hugging Face; Replicate; Google.
    ("sk-", 20),
    ("gsk_", 20),
    ("xai-", 20),
    ("pplx-", 20),
    ("hf_", 20),
    ("r8_", 20),
    ("AIza", 30),
    ("ya29.", 20),
    // Ids of keys of AWS.
    ("AKIA", 16),
    ("ASIA", 16),
    // GitHub, GitLab, Slack, npm.
    ("ghp_", 30),
    ("gho_", 30),
    ("ghu_", 30),
    ("ghs_", 30),
    ("ghr_", 30),
    ("github_pat_", 30),
    ("glpat-", 20),
    ("xoxa-", 10),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("npm_", 30),
    // Stripe, and secrets of webhooks.
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("rk_test_", 16),
    ("whsec_", 16),
    // SendGrid, Cloudflare's origin keys.
    ("SG.", 40),
    ("v1.0-", 40),
];

/// Words before a credential without a shape, in lower case, with its minimum of characters.
const WORDS: [(&str, usize); 3] = [
    ("bearer", 16),
    ("secret_access_key", 30),
    ("secretaccesskey", 30),
];

/// The minimum bytes of a JSON Web Token, and of its first part.
const TOKEN_BYTES: usize = 40;
const TOKEN_HEAD_BYTES: usize = 10;

/// Replaces credentials of well-known shapes by as many asterisks: keys with a known prefix, JSON Web Tokens, tokens
/// after `Bearer`, secret keys of AWS, passwords in URLs, and private keys.
pub fn redact_shapes(text: &mut String) {
    let mut bytes = std::mem::take(text).into_bytes();
    redact_private_keys(&mut bytes);
    let mut scans = Scans::default();
    let mut at = 0;
    while at < bytes.len() {
        let found = match bytes[at] {
            b':' => password(&bytes, at),
            byte if byte.is_ascii_alphabetic() && begins_word(&bytes, at) => {
                prefixed(&bytes, at, &mut scans).or_else(|| after_word(&bytes, at, &mut scans))
            }
            _ => None,
        };
        match found {
            Some((from, to)) => {
                bytes[from..to].fill(b'*');
                at = to;
            }
            None => at += 1,
        }
    }
    // Each replaced range begins and ends at ASCII, so the text is still UTF-8.
    *text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
}

/// Whether a word begins here: also behind an escape of JSON or of a URL, whose last character may be a letter.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    let before = &bytes[..at];
    match before {
        [.., last] if !last.is_ascii_alphanumeric() && *last != b'_' => true,
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., b'%', high, low] => high.is_ascii_hexdigit() && low.is_ascii_hexdigit(),
        [.., b'\\', b'u', _, _, _, _] | [] => true,
        _ => false,
    }
}

const fn is_of_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

const fn is_of_token(byte: u8) -> bool {
    is_of_key(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=')
}

/// The searches in a text, which remember their result: a word in the middle of a long token searches the rest of it once
/// more, and a stranger may send a token with many such words.
///
/// **Invariant:** the time of all searches together is proportional to the bytes of the text. Asterisks that replace
/// credentials before a search cannot change its result, because the search begins behind them.
#[derive(Default)]
struct Scans {
    key_end: Scan,
    token_end: Scan,
    dot: Scan,
    second_dot: Scan,
    digit: Scan,
}

/// A search for the next byte of a kind.
#[derive(Default)]
struct Scan {
    from: usize,
    found: usize,
}

impl Scan {
    /// Returns the place of the first byte of this kind at `from` or later; the length of the bytes if there is none.
    fn next(&mut self, bytes: &[u8], from: usize, is_of_kind: impl Fn(u8) -> bool) -> usize {
        if !(self.from..=self.found).contains(&from) || self.found == 0 {
            let found = bytes[from..].iter().position(|byte| is_of_kind(*byte));
            self.found = found.map_or(bytes.len(), |found| from + found);
            self.from = from;
        }
        self.found
    }
}

fn end_of(bytes: &[u8], from: usize, is_of_kind: fn(u8) -> bool) -> usize {
    let rest = bytes[from..].iter();
    from + rest.take_while(|byte| is_of_kind(**byte)).count()
}

/// Returns the range of a key with a known prefix, or of a JSON Web Token.
fn prefixed(bytes: &[u8], at: usize, scans: &mut Scans) -> Option<(usize, usize)> {
    let rest = &bytes[at..];
    let is_end = |byte| !is_of_key(byte) && byte != b'.';
    if rest.starts_with(b"eyJ") {
        let end = scans.key_end.next(bytes, at, is_end);
        let is_dot = |byte| byte == b'.';
        let first = scans.dot.next(bytes, at, is_dot).min(end);
        let second = match first < end {
            true => scans.second_dot.next(bytes, first + 1, is_dot).min(end),
            false => end,
        };
        let is_token = first - at >= TOKEN_HEAD_BYTES && second < end && end - at >= TOKEN_BYTES;
        return is_token.then_some((at, end));
    }
    let mut prefixes = PREFIXES.iter();
    let (prefix, least) = prefixes.find(|(prefix, _)| rest.starts_with(prefix.as_bytes()))?;
    let from = at + prefix.len();
    let end = scans.key_end.next(bytes, from, is_end);
    (end - from >= *least).then_some((at, end))
}

/// Returns the range of a credential behind a word such as `Bearer`. It has a digit, unlike a word of a text.
fn after_word(bytes: &[u8], at: usize, scans: &mut Scans) -> Option<(usize, usize)> {
    // The last part of a longer name counts, too: `AWS_SECRET_ACCESS_KEY`.
    let name_end = end_of(bytes, at, |byte| byte.is_ascii_alphabetic() || byte == b'_');
    let name = bytes[at..name_end].to_ascii_lowercase();
    let mut words = WORDS.iter();
    let (_, least) = words.find(|(word, _)| name.ends_with(word.as_bytes()))?;
    let is_between = |byte: u8| matches!(byte, b' ' | b'\t' | b':' | b'=' | b'"' | b'\'' | b'\\');
    let from = end_of(bytes, name_end, is_between);
    let end = scans.token_end.next(bytes, from, |byte| !is_of_token(byte));
    let digit = |byte: u8| byte.is_ascii_digit();
    let has_digit = scans.digit.next(bytes, from, digit) < end;
    (from > name_end && end - from >= *least && has_digit).then_some((from, end))
}

/// Returns the range of the password in a URL whose `://` is here.
fn password(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let from = at + b"://".len();
    let authority = bytes[at..].strip_prefix(b"://")?;
    let is_over =
        |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'"' | b'\'' | b'?' | b'#');
    let length = authority.iter().position(is_over);
    let authority = &authority[..length.unwrap_or(authority.len())];
    let end = authority.iter().rposition(|byte| *byte == b'@')?;
    let colon = authority[..end].iter().position(|byte| *byte == b':')?;
    (colon + 1 < end).then_some((from + colon + 1, from + end))
}

/// Redacts the bodies of private keys in the PEM format. One without an end reaches to the end of the text.
fn redact_private_keys(bytes: &mut [u8]) {
    const LABEL: &[u8] = b"PRIVATE KEY-----";
    let (label, end) = (Finder::new(LABEL), Finder::new(b"-----END"));
    let begin = Finder::new(b"-----BEGIN");
    let mut from = 0;
    while let Some(at) = label.find(&bytes[from..]) {
        let body = from + at + LABEL.len();
        // The beginning is on the label's line, behind the label before it.
        let line = bytes[from..body].iter().rposition(|byte| *byte == b'\n');
        let line = line.map_or(from, |at| from + at + 1);
        let is_key = begin.find(&bytes[line..body]).is_some();
        from = body;
        if !is_key {
            continue;
        }
        let length = end.find(&bytes[body..]);
        let body_end = length.map_or(bytes.len(), |length| body + length);
        bytes[body..body_end].fill(b'*');
        // The last line has the label, too.
        let last = label.find(&bytes[body_end..]);
        from = last.map_or(bytes.len(), |at| body_end + at + LABEL.len());
    }
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

    #[test]
    fn credentials_of_known_shapes_are_blotted_out_and_words_stay() {
        let jwt =
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P";
        let digits = "0123456789abcdefghijABCDEFGHIJ0123456789abcdefghij012345678";
        let key = |prefix: &str| format!("{prefix}{digits}");
        for secret in PREFIXES.map(|(prefix, _)| key(prefix)) {
            for (before, after) in [
                ("", ""),
                ("my key is ", ", thanks"),
                ("OPENAI_API_KEY=", "\n"),
                ("{\"k\":\"", "\"}"),
                ("a\\n", "\\n"),
                ("?key%3D", "&x=1"),
                ("ü", " ü"),
            ] {
                let mut text = format!("{before}{secret}{after}");
                redact_shapes(&mut text);
                let stars = "*".repeat(secret.len());
                assert_eq!(text, format!("{before}{stars}{after}"));
            }
        }
        for (before, secret, after) in [
            ("token ", jwt, "."),
            ("Authorization: Bearer ", "abcdefgh01234567abcdef==", "\r\n"),
            (
                "aws_secret_access_key = ",
                "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                "\n",
            ),
            (
                "\"SecretAccessKey\": \"",
                "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                "\"",
            ),
            ("postgres://weir:", "s3cret:p@ss", "@db.example/weir"),
            (
                "-----BEGIN RSA PRIVATE KEY-----",
                "\nMIIE\nü+/=\n",
                "-----END RSA PRIVATE KEY-----",
            ),
            ("x\n-----BEGIN PRIVATE KEY-----", "\nMIIE cut", ""),
        ] {
            let mut text = format!("{before}{secret}{after}");
            redact_shapes(&mut text);
            // A token in a sentence may take the sentence's full stop with it.
            let shown = text.replace('*', "");
            assert!(
                shown == format!("{before}{after}") || shown == before,
                "{before}{secret}: {text}"
            );
        }
        for word in [
            "ask-me-about-the-task-that-has-no-key-in-it",
            "sk-short",
            "a bearer internationalization standard",
            "The bearer of this letter",
            "https://example.com/a:b@c and http://[::1]:8080/",
            "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
            "eyJust kidding, eyJ.eyJ.x",
            "AKIA",
            "a_sk-0123456789abcdef0123456789",
        ] {
            let mut text = word.to_owned();
            redact_shapes(&mut text);
            assert_eq!(text, word);
        }
    }
}
