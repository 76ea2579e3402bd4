//! Names of tools, and other words with an alphabet and a length.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::chat::{Block, ChatRequest, Content, Event, ToolChoice};
use crate::wire::Ignored;

/// The rule for a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// The most characters.
    pub most: usize,
    /// The characters.
    pub alphabet: Alphabet,
}

/// The characters of a word. All have letters and digits of ASCII, `_` and `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// No others.
    Plain,
    /// Also `.` and `:`.
    Dotted,
    /// Also `.` and `:`, and the first character is a letter or `_`.
    Identifier,
    /// Every character.
    Any,
}

/// The names of tools that the provider knows under others.
#[derive(Debug, Default)]
pub struct FittedNames(Vec<FittedName>);

#[derive(Debug)]
struct FittedName {
    sent: String,
    clients: String,
}

/// Characters of a hash, with the `_` before it.
const HASH: usize = 9;

impl Name {
    /// Returns the word, or another one that fits and has a hash of it. Equal words stay equal, and different ones different.
    pub fn fit(self, word: &str) -> Cow<'_, str> {
        if self.allows(word) {
            return Cow::Borrowed(word);
        }
        let replaced = word
            .chars()
            .map(|c| if self.alphabet.has(c) { c } else { '_' });
        let mut fitted: String = replaced.take(self.most - HASH).collect();
        if !self.alphabet.begins(&fitted) {
            fitted.insert(0, '_');
            fitted.truncate(self.most - HASH);
        }
        let (hash, _) = hash(word);
        fitted += &format!("_{:08x}", hash as u32);
        Cow::Owned(fitted)
    }

    /// Returns another word that fits, for the same word once more.
    pub(super) fn again(self, word: &str, number: usize) -> String {
        let (hash, _) = hash(&format!("{number} {word}"));
        let fitted = self.fit(word);
        let kept = fitted.chars().take(self.most - HASH);
        kept.collect::<String>() + &format!("_{:08x}", hash as u32)
    }

    fn allows(self, word: &str) -> bool {
        (1..=self.most).contains(&word.chars().count())
            && word.chars().all(|c| self.alphabet.has(c))
            && self.alphabet.begins(word)
    }
}

impl Alphabet {
    fn has(self, c: char) -> bool {
        match c {
            _ if c.is_ascii_alphanumeric() => true,
            '_' | '-' => true,
            '.' | ':' => self != Self::Plain,
            _ => self == Self::Any,
        }
    }

    fn begins(self, word: &str) -> bool {
        let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
        self != Self::Identifier || word.starts_with(begins)
    }
}

/// Returns a text of at most this many bytes: itself, or a hash of it.
pub fn shortened(text: &str, most_bytes: usize) -> Cow<'_, str> {
    if text.len() <= most_bytes {
        return Cow::Borrowed(text);
    }
    let (first, second) = hash(text);
    Cow::Owned(format!("{first:016x}{second:016x}"))
}

/// Hashes a text twice. The hashes have no secret: nobody gains by two texts with the same one but their own mix-up.
fn hash(text: &str) -> (u64, u64) {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let first = hasher.finish();
    text.hash(&mut hasher);
    (first, hasher.finish())
}

/// Fits the names of tools, also in the choice among them and in earlier calls. The first of tools with one name stays.
pub(super) fn fit(chat: &mut ChatRequest, rule: Name, ignored: &mut Ignored) -> FittedNames {
    let mut fitted = FittedNames::default();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let before = chat.tools.len();
    chat.tools.retain_mut(|tool| {
        let Some(name) = super::tool_name(&mut tool.kind) else {
            return true;
        };
        fitted.rename(name, rule);
        seen.insert(name.clone())
    });
    ignored.add_if(chat.tools.len() < before, "tools");
    match &mut chat.tool_choice {
        ToolChoice::Named(name) => fitted.rename(name, rule),
        ToolChoice::Among(allowed) => {
            for name in &mut allowed.names {
                fitted.rename(name, rule);
            }
        }
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => {}
    }
    for part in chat
        .messages
        .iter_mut()
        .flat_map(|message| &mut message.parts)
    {
        match &mut part.content {
            Content::ToolCall(call) => fitted.rename(&mut call.name, rule),
            Content::ToolResult(result) => {
                if let Some(name) = &mut result.tool_name {
                    fitted.rename(name, rule);
                }
            }
            _ => {}
        }
    }
    fitted
}

impl FittedNames {
    fn rename(&mut self, name: &mut String, rule: Name) {
        let Cow::Owned(sent) = rule.fit(name) else {
            return;
        };
        let clients = std::mem::replace(name, sent.clone());
        if !self.0.iter().any(|known| known.sent == sent) {
            self.0.push(FittedName { sent, clients });
        }
    }

    /// Gives the calls in an answer the client's names.
    pub fn restore(&self, events: &mut [Event]) {
        if self.0.is_empty() {
            return;
        }
        for event in events {
            if let Event::BlockStart(start) = event
                && let Block::ToolCall(call) = &mut start.block
                && let Some(known) = self.0.iter().find(|known| known.sent == call.name)
            {
                call.name.clone_from(&known.clients);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Name = Name {
        most: 64,
        alphabet: Alphabet::Plain,
    };

    #[test]
    fn words_fit_and_stay_different() {
        assert_eq!(PLAIN.fit("get_weather-2"), "get_weather-2");
        let long = "m".repeat(70);
        let fitted = [
            PLAIN.fit(&long).into_owned(),
            PLAIN.fit(&format!("{long}m")).into_owned(),
            PLAIN.fit("a.b").into_owned(),
            PLAIN.fit("a:b").into_owned(),
            PLAIN.fit("").into_owned(),
            PLAIN.fit("größe").into_owned(),
        ];
        for (index, word) in fitted.iter().enumerate() {
            assert!(PLAIN.allows(word), "{word}");
            assert!(!fitted[..index].contains(word), "{word} twice");
        }
        assert!(fitted[2].starts_with("a_b_"));
    }

    #[test]
    fn identifiers_begin_with_a_letter() {
        let rule = Name {
            most: 64,
            alphabet: Alphabet::Identifier,
        };
        assert_eq!(rule.fit("a.b:c"), "a.b:c");
        for word in ["7zip", "-x", &"7".repeat(64)] {
            let fitted = rule.fit(word);
            assert!(rule.allows(&fitted), "{fitted}");
        }
    }

    #[test]
    fn long_ids_are_hashes() {
        assert_eq!(shortened("usr_1", 64), "usr_1");
        let long = "u".repeat(65);
        assert_eq!(shortened(&long, 64).len(), 32);
        assert_eq!(shortened(&long, 64), shortened(&long, 64));
    }
}
