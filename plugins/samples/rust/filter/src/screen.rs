//! A request with a code name in it is refused; an answer has asterisks in its place.

use std::collections::BTreeMap;

use weir_sdk::chat::{Event, Fragment};
use weir_sdk::filter::{
    AnswerFilter, Description, Filter, OpenBlocks, Refusal, RefusedSetting, Request, Screened,
    Setting, Verdict, check_is_readable, each_text,
};

/// The code names, unless the operator sets others.
const WORDS: &str = "bluebird,nightjar";

/// The filter.
pub struct CodeNames;

impl Filter for CodeNames {
    fn describe() -> Description {
        Description {
            name: "acme".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            options: vec!["words".to_owned()],
        }
    }

    /// The host refuses options of any other name.
    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        let set = options.first().map_or(WORDS, |(_, value)| value);
        let words = list(set);
        if words.is_empty() {
            return Err(RefusedSetting {
                name: "words".to_owned(),
                why: "must be words, with commas between them".to_owned(),
            });
        }
        Ok(words.join(",").into_bytes())
    }

    fn screen(mut request: Request, configuration: &[u8]) -> Result<Verdict, Refusal> {
        let words = list(&String::from_utf8_lossy(configuration));
        // A code name could be in an image or a file, which no filter can read.
        check_is_readable(&mut request.task, &[])?;
        let mut has_one = false;
        each_text(&mut request.task, |text| {
            has_one |= mask(text, &words, true).0 != *text;
        });
        if has_one {
            return Err(Refusal {
                why: "has a code name in it".to_owned(),
                param: None,
            });
        }
        Ok(Verdict {
            answer: Some(Box::new(Masking {
                words,
                open: OpenBlocks::default(),
                held: BTreeMap::new(),
            })),
            ..Verdict::default()
        })
    }
}

/// Masks code names in an answer.
struct Masking {
    words: Vec<String>,
    open: OpenBlocks,
    /// Of each block, what could still become a code name.
    held: BTreeMap<u32, String>,
}

impl AnswerFilter for Masking {
    fn events(&mut self, events: Vec<Event>) -> Screened {
        let mut out = Vec::new();
        for event in events {
            self.open.follow(&event);
            match event {
                // A call's arguments are left as they are: they go to the client's own tools.
                Event::Fragment(Fragment { index, text }) if self.open.is_prose(index) => {
                    let held = self.held.entry(index).or_default();
                    held.push_str(&text);
                    let (text, taken) = mask(held, &self.words, false);
                    held.drain(..taken);
                    if !text.is_empty() {
                        out.push(Event::Fragment(Fragment { index, text }));
                    }
                }
                Event::BlockEnd(index) => {
                    let held = self.held.remove(&index).unwrap_or_default();
                    if !held.is_empty() {
                        let (text, _) = mask(&held, &self.words, true);
                        out.push(Event::Fragment(Fragment { index, text }));
                    }
                    out.push(event);
                }
                // They say the text again.
                Event::Logprobs(_) => {}
                Event::Citation(mut citation) => {
                    for text in [&mut citation.title, &mut citation.cited_text] {
                        *text = text.take().map(|text| mask(&text, &self.words, true).0);
                    }
                    citation.json = None;
                    out.push(Event::Citation(citation));
                }
                event => out.push(event),
            }
        }
        Screened::Replace(out)
    }

    fn restart(&mut self) {
        self.open = OpenBlocks::default();
        self.held.clear();
    }
}

fn list(words: &str) -> Vec<String> {
    let words = words.split(',').map(str::trim);
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// A text with as many asterisks in place of each code name, and how many bytes of it that was: less than all where the rest
/// may yet become one.
fn mask(text: &str, words: &[String], is_end: bool) -> (String, usize) {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let begins = |text: &str, word: &str| {
            let begin = text.get(..word.len());
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(word))
        };
        if let Some(word) = words.iter().find(|word| begins(rest, word)) {
            masked.extend(word.chars().map(|_| '*'));
            rest = &rest[word.len()..];
        } else if !is_end && words.iter().any(|word| begins(word, rest)) {
            break;
        } else {
            masked.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    (masked, text.len() - rest.len())
}
