//! The placeholders of one request, such as `[e-mail-1]`, and the values that they replace.
//!
//! The same value has the same placeholder everywhere in a request. Numbers follow the first appearances, so that a
//! conversation keeps its placeholders as it grows, and a provider's prompt cache keeps its prefix.
//!
//! **Invariant:** no placeholder is in the request already: the client's own text cannot become a value.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};

use crate::kinds::{KINDS, Redactor};

#[derive(Default)]
pub struct Placeholders {
    /// Values by placeholder.
    values: BTreeMap<String, String>,
    /// Placeholders by value.
    by_value: BTreeMap<String, String>,
    /// The last number of each kind.
    last: BTreeMap<&'static str, u32>,
    /// Texts of the client that look like placeholders.
    reserved: BTreeSet<String>,
}

impl Placeholders {
    /// Takes note of a text of the request, before the first replacement.
    pub fn reserve(&mut self, text: &str) {
        for (at, _) in text.match_indices('[') {
            let Some(length) = length(&text[at..]) else {
                continue;
            };
            self.reserved.insert(text[at..at + length].to_owned());
        }
    }

    /// Returns whether the request had no personal data.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Replaces personal data in a text of the client; `None` without any.
    pub fn hide(
        &mut self,
        redactor: &Redactor,
        text: &str,
        mut count: impl FnMut(&'static str),
    ) -> Option<String> {
        let found = redactor.find(None, text).into_iter();
        let found = found.map(|one| {
            count(one.name);
            let placeholder = self.of(one.name, &text[one.bytes.clone()]);
            (one.bytes, placeholder)
        });
        let found: Vec<_> = found.collect();
        replaced(text, &found)
    }

    /// Replaces the values that already have a placeholder; `None` without any.
    pub fn hide_known(&self, redactor: &Redactor, text: &str) -> Option<String> {
        let found = redactor.find(None, text).into_iter();
        let known = found.filter_map(|one| {
            let placeholder = self.by_value.get(&text[one.bytes.clone()])?;
            Some((one.bytes, placeholder))
        });
        replaced(text, &known.collect::<Vec<_>>())
    }

    /// Replaces placeholders by their values; `None` without any.
    pub fn restore(&self, text: &str) -> Option<String> {
        replaced(text, &self.find(text))
    }

    /// Returns all placeholders in a text, in order, with their values.
    pub fn find<'a>(&'a self, text: &str) -> Vec<(Range<usize>, &'a str)> {
        if self.is_empty() {
            return Vec::new();
        }
        let begins = text.match_indices('[');
        let found = begins.filter_map(|(at, _)| {
            let bytes = at..at + length(&text[at..])?;
            Some((bytes.clone(), &**self.values.get(&text[bytes])?))
        });
        found.collect()
    }

    /// Returns the start of the text that further text could turn into a placeholder.
    pub fn undecided(&self, text: &str) -> usize {
        let begin = text.rfind('[').filter(|at| {
            let rest = &text[*at..];
            let from = (Bound::Included(rest), Bound::Unbounded);
            let next = self.values.range::<str, _>(from).next();
            next.is_some_and(|(placeholder, _)| {
                placeholder.len() > rest.len() && placeholder.starts_with(rest)
            })
        });
        begin.unwrap_or(text.len())
    }

    fn of(&mut self, kind: &'static str, value: &str) -> String {
        if let Some(placeholder) = self.by_value.get(value) {
            return placeholder.clone();
        }
        let last = self.last.entry(kind).or_default();
        let placeholder = loop {
            *last += 1;
            let placeholder = format!("[{kind}-{last}]");
            if !self.reserved.contains(&placeholder) {
                break placeholder;
            }
        };
        self.values.insert(placeholder.clone(), value.to_owned());
        self.by_value.insert(value.to_owned(), placeholder.clone());
        placeholder
    }
}

/// Returns the length of the placeholder at the beginning of a text.
fn length(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let number = KINDS.iter().find_map(|kind| {
        let rest = inner.strip_prefix(kind.name)?;
        rest.strip_prefix('-')
    })?;
    let rest = number.trim_start_matches(|one: char| one.is_ascii_digit());
    let is_placeholder = rest.len() < number.len() && rest.starts_with(']');
    is_placeholder.then(|| text.len() - rest.len() + 1)
}

/// Returns a text with replacements, which are in order; `None` without any.
fn replaced(text: &str, all: &[(Range<usize>, impl AsRef<str>)]) -> Option<String> {
    let mut changed = String::new();
    let mut at = 0;
    for (bytes, replacement) in all {
        changed.push_str(&text[at..bytes.start]);
        changed.push_str(replacement.as_ref());
        at = bytes.end;
    }
    (!all.is_empty()).then(|| changed + &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(placeholders: &mut Placeholders, text: &str) -> String {
        let redactor = Redactor::new(u8::MAX);
        let hidden = placeholders.hide(&redactor, text, |_| {});
        hidden.unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn a_value_has_one_placeholder_which_becomes_the_value_again() {
        let mut placeholders = Placeholders::default();
        let text = "a@b.co, 219-09-9999, c@d.org, a@b.co";
        let sent = hidden(&mut placeholders, text);
        assert_eq!(sent, "[e-mail-1], [ssn-1], [e-mail-2], [e-mail-1]");
        assert_eq!(placeholders.restore(&sent).as_deref(), Some(text));
        let made_up = "[e-mail-3] [e-mail-01] [e-mail] [phone-1] [e-mail-1";
        assert_eq!(placeholders.restore(made_up), None);
        assert_eq!(
            placeholders.restore("[[e-mail-1]](x)").as_deref(),
            Some("[a@b.co](x)")
        );
    }

    #[test]
    fn a_text_of_the_client_is_no_placeholder() {
        let mut placeholders = Placeholders::default();
        placeholders.reserve("as [[e-mail-1], [e-mail-3] and [e-mail-x]");
        let sent = hidden(&mut placeholders, "a@b.co c@d.org");
        assert_eq!(sent, "[e-mail-2] [e-mail-4]");
        assert_eq!(placeholders.restore("[e-mail-1]"), None);
    }

    #[test]
    fn only_known_values_are_hidden_in_a_providers_text() {
        let mut placeholders = Placeholders::default();
        hidden(&mut placeholders, "a@b.co");
        let redactor = Redactor::new(u8::MAX);
        let hidden = placeholders.hide_known(&redactor, "c@d.org a@b.co");
        assert_eq!(hidden.as_deref(), Some("c@d.org [e-mail-1]"));
        assert_eq!(placeholders.hide_known(&redactor, "c@d.org"), None);
    }

    #[test]
    fn only_the_beginning_of_a_placeholder_is_undecided() {
        let mut placeholders = Placeholders::default();
        hidden(&mut placeholders, "a@b.co");
        for (text, held) in [
            ("see [e-mail-1", "[e-mail-1"),
            ("see [", "["),
            ("[[e-", "[e-"),
            ("[e-mail-1]", ""),
            ("[e-mail-2", ""),
            ("[card-", ""),
            ("[link", ""),
            ("e-mail", ""),
        ] {
            assert_eq!(&text[placeholders.undecided(text)..], held, "{text}");
        }
        assert_eq!(Placeholders::default().undecided("["), 1);
    }
}
