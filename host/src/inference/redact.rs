//! Blots out a secret in a stream of bytes, wherever the stream is cut.
//!
//! An upstream that echoes the request's headers, or an error that quotes the key, would show an adapter
//! the credential that the host keeps from it. So what an upstream answers passes through here first.

use bytes::Bytes;
use memchr::memmem::Finder;

/// Replaces each occurrence of a secret by as many asterisks.
pub struct Redactor {
    secret: Option<Finder<'static>>,
    /// The end of what came so far, if the secret could begin there.
    held: Vec<u8>,
}

impl Redactor {
    /// For this secret; without one, everything passes.
    pub fn new(secret: Option<&str>) -> Self {
        Self {
            secret: secret
                .filter(|secret| !secret.is_empty())
                .map(|secret| Finder::new(secret.as_bytes()).into_owned()),
            held: Vec::new(),
        }
    }

    /// The bytes that can be handed on now. What may be the secret's beginning is held back.
    pub fn push(&mut self, bytes: Bytes) -> Bytes {
        let Some(finder) = &self.secret else {
            return bytes;
        };
        let secret = finder.needle();
        if self.held.is_empty() {
            let held = overlap(&bytes, secret);
            if held == 0 && finder.find(&bytes).is_none() {
                return bytes;
            }
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(&bytes);
        blot_out(finder, &mut all);
        let held = overlap(&all, secret);
        self.held = all.split_off(all.len() - held);
        all.into()
    }

    /// What was held back, at the end of the stream.
    pub fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }
}

fn blot_out(finder: &Finder<'_>, bytes: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = finder.find(&bytes[from..]) {
        let end = from + at + finder.needle().len();
        bytes[from + at..end].fill(b'*');
        from = end;
    }
}

/// The length of the longest end of `bytes` that `secret` begins with, and that is not all of it.
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
    fn without_a_secret_everything_passes() {
        let mut redactor = Redactor::new(None);
        assert_eq!(redactor.push(Bytes::from_static(b"x")), "x");
        assert_eq!(redactor.finish(), "");
    }
}
