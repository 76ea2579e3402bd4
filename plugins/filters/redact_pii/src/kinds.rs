//! The kinds of personal data, and the search for them in a text.
//!
//! A kind has a regular expression, which finds candidates, and a check, which confirms them. Regular expressions
//! compile slowly, and each request has a fresh instance: a cheap test therefore decides first whether a text can
//! contain a match.
//!
//! The begin of a match depends on at most [`PiiKind::longest`] bytes from there, the character before and the character
//! after. A text in pieces can therefore be redacted as it arrives ([`Redactor::undecided`]), with the same result.
//!
//! No match has a bracket, a quote or a backslash: it neither overlaps a placeholder nor needs an escape in JSON.
//!
//! To add a kind, add a row to [`KINDS`], and its name to plugins/README.md.

use std::cell::OnceCell;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use regex_lite::Regex;

pub struct PiiKind {
    /// The name in options and annotations.
    pub name: &'static str,
    /// The replacement in responses.
    pub placeholder: &'static str,
    expression: &'static str,
    /// Returns the length of a match, complete or trimmed, or 0 if the candidate is no match.
    check: fn(&str) -> usize,
    /// Returns whether a text can contain a match: true for every match by itself.
    cheap_test: fn(&str) -> bool,
    /// Maximum length of a match, in bytes.
    longest: usize,
    /// Returns whether a match may contain this character.
    may_hold: fn(char) -> bool,
    /// Returns whether a text of such characters may begin a match.
    may_begin: fn(&str) -> bool,
    /// A match begins at the beginning of a word or number.
    begins_word: bool,
}

/// All kinds. If two matches begin at the same place, the earlier kind wins.
pub static KINDS: [PiiKind; 6] = [
    PiiKind {
        name: "e-mail",
        placeholder: "[e-mail]",
        expression: r"[A-Za-z0-9À-ɏ._%+'-]{1,64}@(?:[A-Za-z0-9À-ɏ-]{1,63}\.){1,4}[A-Za-z]{2,24}\b",
        check: str::len,
        cheap_test: |text| text.contains('@'),
        // The maximum of RFC 5321.
        longest: 254,
        may_hold: |one| {
            one.is_ascii_alphanumeric()
                || ('À'..='ɏ').contains(&one)
                || matches!(one, '.' | '_' | '%' | '+' | '\'' | '-' | '@')
        },
        may_begin: |text| !text.starts_with('@'),
        begins_word: false,
    },
    PiiKind {
        name: "card",
        placeholder: "[card]",
        expression: r"[2-6](?:[ -]?\d){12,18}\b",
        check: |text| trimmed(text, is_card),
        cheap_test: |text| has_digits(text, 13),
        longest: 37,
        may_hold: |one| one.is_ascii_digit() || matches!(one, ' ' | '-'),
        may_begin: |text| text.starts_with(|first| matches!(first, '2'..='6')),
        begins_word: true,
    },
    PiiKind {
        name: "iban",
        placeholder: "[iban]",
        expression: r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",
        check: |text| trimmed(text, is_iban),
        cheap_test: |text| has_digits(text, 2),
        longest: 43,
        may_hold: |one| one.is_ascii_uppercase() || one.is_ascii_digit() || one == ' ',
        may_begin: |text| {
            let mut begin = text.bytes();
            begin.by_ref().take(2).all(|one| one.is_ascii_uppercase())
                && begin.take(2).all(|one| one.is_ascii_digit())
        },
        begins_word: true,
    },
    PiiKind {
        name: "ssn",
        placeholder: "[ssn]",
        expression: r"\d{3}[ -]\d{2}[ -]\d{4}\b",
        check: |text| if is_ssn(text) { text.len() } else { 0 },
        cheap_test: |text| has_digits(text, 9),
        longest: 11,
        may_hold: |one| one.is_ascii_digit() || matches!(one, ' ' | '-'),
        may_begin: |text| text.starts_with(|first: char| first.is_ascii_digit()),
        begins_word: true,
    },
    PiiKind {
        name: "phone",
        placeholder: "[phone]",
        // With the country code; or the North American form.
        expression: r"\+\d(?:[ .()/-]{0,2}\d){7,14}\b|(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}\b",
        check: str::len,
        cheap_test: |text| has_digits(text, 8),
        longest: 44,
        may_hold: |one| {
            one.is_ascii_digit() || matches!(one, '+' | ' ' | '.' | '(' | ')' | '/' | '-')
        },
        may_begin: |text| {
            text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '('))
        },
        begins_word: true,
    },
    PiiKind {
        name: "ip",
        placeholder: "[ip]",
        expression: r"\d{1,3}(?:\.\d{1,3}){3}\b|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){1,7}\b",
        check: |text| {
            let is_ip = text.parse::<Ipv4Addr>().is_ok() || text.parse::<Ipv6Addr>().is_ok();
            // `a::b` is more often a path in a program.
            if is_ip && has_digits(text, 1) {
                text.len()
            } else {
                0
            }
        },
        cheap_test: |text| has_digits(text, 1) && text.contains(['.', ':']),
        longest: 39,
        may_hold: |one| one.is_ascii_hexdigit() || matches!(one, '.' | ':'),
        may_begin: |text| !text.starts_with('.'),
        begins_word: true,
    },
];

/// The kinds that are redacted by default, one bit each: an IP address is usually a server's.
pub const DEFAULT_KINDS: u8 = 0b01_1111;

/// A search for some kinds.
pub struct Redactor {
    kinds: Vec<(&'static PiiKind, OnceCell<Regex>)>,
}

/// The place of a match in a text.
#[derive(Debug, Clone, PartialEq)]
pub struct PiiMatch {
    pub bytes: Range<usize>,
    pub name: &'static str,
    pub placeholder: &'static str,
}

impl Redactor {
    /// Searches for the kinds whose bit is set.
    pub fn new(kinds: u8) -> Self {
        let chosen = KINDS.iter().enumerate();
        let chosen = chosen.filter(|(bit, _)| kinds & (1 << bit) != 0);
        Self {
            kinds: chosen.map(|(_, kind)| (kind, OnceCell::new())).collect(),
        }
    }

    /// Returns whether it searches for nothing.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns all matches in a text after this character, in order, without overlaps.
    pub fn find(&self, before: Option<char>, text: &str) -> Vec<PiiMatch> {
        let mut all = Vec::new();
        let kinds = self.kinds.iter();
        let able: Vec<_> = kinds
            .filter(|(kind, _)| (kind.cheap_test)(text))
            .map(|(kind, regex)| {
                let kind: &PiiKind = kind;
                let compile = || Regex::new(kind.expression).expect("it is tested");
                (kind, regex.get_or_init(compile))
            })
            .collect();
        let next =
            |at: usize, (kind, regex): (&PiiKind, &Regex)| kind.next(regex, before, text, at);
        let mut nexts: Vec<_> = able.iter().map(|one| next(0, *one)).collect();
        loop {
            let found = nexts.iter().zip(&able);
            let found = found.filter_map(|(bytes, (kind, _))| Some((bytes.clone()?, kind)));
            let Some((bytes, kind)) = found.min_by_key(|(bytes, _)| bytes.start) else {
                return all;
            };
            let end = bytes.end;
            all.push(PiiMatch {
                bytes,
                name: kind.name,
                placeholder: kind.placeholder,
            });
            for (bytes, one) in nexts.iter_mut().zip(&able) {
                if bytes.as_ref().is_some_and(|bytes| bytes.start < end) {
                    *bytes = next(end, *one);
                }
            }
        }
    }

    /// Returns the start of the text that further text could turn into a match, or into a longer match.
    pub fn undecided(&self, before: Option<char>, text: &str) -> usize {
        let from = self.kinds.iter();
        from.map(|(kind, _)| kind.undecided(before, text))
            .min()
            .unwrap_or(text.len())
    }

    /// Redacts a complete text in place. Returns the kinds found.
    pub fn redact(&self, text: &mut String) -> Vec<&'static str> {
        let found = self.find(None, text);
        // From the end, so that earlier positions stay valid.
        for one in found.iter().rev() {
            text.replace_range(one.bytes.clone(), one.placeholder);
        }
        found.into_iter().map(|one| one.name).collect()
    }
}

impl PiiKind {
    /// Returns the first match at this byte or later.
    fn next(
        &self,
        regex: &Regex,
        before: Option<char>,
        text: &str,
        mut from: usize,
    ) -> Option<Range<usize>> {
        loop {
            let found = regex.find_at(text, from)?;
            let start = found.start();
            if self.may_start(before, text, start) {
                let length = (self.check)(found.as_str());
                if length > 0 {
                    return Some(start..start + length);
                }
            }
            from = start + text[start..].chars().next()?.len_utf8();
        }
    }

    fn may_start(&self, before: Option<char>, text: &str, at: usize) -> bool {
        let previous = text[..at].chars().next_back().or(before);
        !(self.begins_word && previous.is_some_and(char::is_alphanumeric))
    }

    fn undecided(&self, before: Option<char>, text: &str) -> usize {
        let run = text.char_indices().rev();
        let run =
            run.take_while(|(at, one)| (self.may_hold)(*one) && text.len() - at <= self.longest);
        let starts = run
            .filter(|(at, _)| self.may_start(before, text, *at) && (self.may_begin)(&text[*at..]));
        starts.last().map_or(text.len(), |(at, _)| at)
    }
}

fn has_digits(text: &str, least: usize) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit);
    digits.take(least).count() == least
}

/// Returns the length of the longest prefix of a match that ends with a word and passes, without separators.
fn trimmed(text: &str, passes: fn(&[u8]) -> bool) -> usize {
    let bytes = text.as_bytes();
    let is_end = |end: &usize| {
        bytes[end - 1].is_ascii_alphanumeric()
            && bytes
                .get(*end)
                .is_none_or(|next| !next.is_ascii_alphanumeric())
    };
    let mut ends = (1..=bytes.len()).rev().filter(is_end);
    let passing = ends.find(|end| {
        let plain = bytes[..*end].iter().copied();
        let plain: Vec<u8> = plain.filter(u8::is_ascii_alphanumeric).collect();
        passes(&plain)
    });
    passing.unwrap_or(0)
}

/// Checks ISO/IEC 7812-1: 13 to 19 digits, the last of them Luhn's check digit.
fn is_card(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| {
            let digit = u32::from(digit - b'0');
            match place % 2 {
                0 => digit,
                _ => digit * 2 / 10 + digit * 2 % 10,
            }
        })
        .sum();
    (13..=19).contains(&digits.len()) && sum.is_multiple_of(10)
}

/// Checks ISO 13616: 15 to 34 letters and digits, equal to 1 modulo 97 after the first four are moved to the end.
fn is_iban(plain: &[u8]) -> bool {
    if !(15..=34).contains(&plain.len()) {
        return false;
    }
    let (front, rest) = plain.split_at(4);
    let remainder = rest.iter().chain(front).fold(0u32, |sum, one| match one {
        b'0'..=b'9' => (sum * 10 + u32::from(one - b'0')) % 97,
        _ => (sum * 100 + u32::from(one - b'A') + 10) % 97,
    });
    remainder == 1
}

/// Excludes numbers that are never issued.
fn is_ssn(text: &str) -> bool {
    let area = &text[..3];
    let is_given = area != "000" && area != "666" && !area.starts_with('9');
    is_given && &text[4..6] != "00" && &text[7..] != "0000"
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u8 = 0b11_1111;

    fn redacted(kinds: u8, text: &str) -> String {
        let mut text = text.to_owned();
        Redactor::new(kinds).redact(&mut text);
        text
    }

    #[test]
    fn each_kind_is_found_within_a_text() {
        for (text, expected) in [
            ("To ada.l+x@mail.example.org.", "To [e-mail]."),
            ("<josé@exämple.co>", "<[e-mail]>"),
            ("4111 1111 1111 1111 123", "[card] 123"),
            ("card:4111111111111111, ok", "card:[card], ok"),
            ("2024 5500-0000-0000-0004", "2024 [card]"),
            ("amex 378282246310005", "amex [card]"),
            ("DE89 3704 0044 0532 0130 00 AND SO", "[iban] AND SO"),
            ("(GB82WEST12345698765432)", "([iban])"),
            ("SSN 219-09-9999!", "SSN [ssn]!"),
            ("+49 30 1234567 or", "[phone] or"),
            ("call (555) 010-9999", "call [phone]"),
            ("1-555-010-9999", "[phone]"),
            ("from 192.168.0.1:80", "from [ip]:80"),
            (
                "at fe80::1 and 2001:db8::8a2e:370:7334.",
                "at [ip] and [ip].",
            ),
            ("a@b.co,c@d.co", "[e-mail],[e-mail]"),
        ] {
            assert_eq!(redacted(ALL, text), expected, "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_one_is_kept() {
        for text in [
            "a @ b, @home, user@localhost",
            "4111 1111 1111 1112",
            "order 1700000000000 of 12345678901234567890",
            "DE88 3704 0044 0532 0130 00",
            "000-12-3456 and 666-12-3456 and 219-00-9999",
            "on 2026-11-23, 555-0100, 3.14159265358979",
            "12:30:45 and 256.1.1.1 and std::vec",
        ] {
            assert_eq!(redacted(ALL, text), text);
        }
    }

    #[test]
    fn only_the_kinds_that_are_asked_for_are_redacted() {
        let text = "a@b.co 219-09-9999 10.0.0.1";
        assert_eq!(redacted(DEFAULT_KINDS, text), "[e-mail] [ssn] 10.0.0.1");
        assert_eq!(redacted(0b10_0000, text), "a@b.co 219-09-9999 [ip]");
        assert_eq!(redacted(0, text), text);
    }

    #[test]
    fn no_kind_has_characters_of_placeholders_or_escapes() {
        for kind in &KINDS {
            assert!(!['[', ']', '"', '\\', '\n'].into_iter().any(kind.may_hold));
            assert_eq!(kind.placeholder, format!("[{}]", kind.name));
        }
    }

    #[test]
    fn little_of_a_text_is_undecided() {
        let redactor = Redactor::new(DEFAULT_KINDS);
        let undecided = |text: &str| text.len() - redactor.undecided(None, text);
        assert_eq!(undecided("It was a dark night. "), 0);
        assert_eq!(undecided("It was a dark"), 4);
        assert_eq!(undecided("I have 3 "), 2);
        assert_eq!(undecided("DE89 3704 "), 10);
        assert_eq!(undecided("LOUD WORDS "), 0);
        for piece in ["x", "1", "1 ", "A", "é", "@", "+1", "DE89 "] {
            assert!(undecided(&piece.repeat(1_000)) <= 256, "{piece}");
        }
    }
}
