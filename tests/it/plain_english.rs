//! The documentation is plain English, as far as a program can tell.
//!
//! A sentence that begins with a pronoun or a question word hides its subject: "What is revoked is refused" for "Revoked keys are
//! rejected". Such sentences and some words without a plain meaning are refused in every Markdown file.

use std::fs;
use std::path::PathBuf;

use tests::source::{files, root};

/// Words that no statement begins with.
const OPENINGS: [&str; 9] = [
    "Of", "That", "What", "Whatever", "Where", "Which", "Who", "Whoever", "Whose",
];

/// Words and phrases that have a plain one in their place.
const PHRASES: [&str; 6] = [
    "as it were",
    "by which",
    "of which",
    "so that none",
    "whatever",
    "whoever",
];

/// Folders with documents.
const FOLDERS: [&str; 5] = ["host", "migrations", "plugins", "tests", "wit"];

/// The files of sample projects are not counted: `tests/samples.sha256` holds their bytes.
const SAMPLES: &str = "samples";

/// Words of all documentation that people write. `errors.md` and `settings.md` are references.
const MOST_WORDS: usize = 16_000;

const REFERENCES: [&str; 2] = ["errors.md", "settings.md"];

fn documents() -> Vec<(PathBuf, String)> {
    let below = FOLDERS
        .iter()
        .flat_map(|folder| files(&root().join(folder), "md"));
    let is_sample = |path: &PathBuf| path.iter().any(|part| part == SAMPLES);
    let paths = below.filter(|path| !is_sample(path));
    paths
        .chain([root().join("README.md")])
        .map(|path| {
            let text = fs::read_to_string(&path).expect("UTF-8");
            (path, text)
        })
        .collect()
}

/// The sentences of a document: of its paragraphs, list items and table cells, without headings and code.
fn sentences(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    let mut is_code = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code || line.is_empty() || line.starts_with('#') {
            blocks.push(String::new());
        } else if line.starts_with('|') {
            blocks.extend(line.split('|').map(str::to_owned));
            blocks.push(String::new());
        } else {
            let item = line.trim_start_matches(|sign: char| sign.is_ascii_digit() || sign == '.');
            let item = item.strip_prefix("- ").or(item.strip_prefix("* "));
            match item {
                Some(item) => blocks.push(item.to_owned()),
                None => {
                    let block = blocks.last_mut().expect("there is one");
                    block.push(' ');
                    block.push_str(line);
                }
            }
        }
    }
    let ends = [". ", "! ", "? "];
    let mut sentences = Vec::new();
    for block in blocks {
        let mut rest = block.trim();
        while let Some(end) = ends.iter().filter_map(|end| rest.find(end)).min() {
            sentences.push(rest[..=end].to_owned());
            rest = rest[end + 1..].trim_start();
        }
        if !rest.is_empty() {
            sentences.push(rest.to_owned());
        }
    }
    sentences
}

#[test]
fn sentences_begin_with_their_subject() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (path, text) in documents() {
        for sentence in sentences(&text) {
            count += 1;
            let first = sentence
                .split(|letter: char| !letter.is_ascii_alphabetic())
                .find(|word| !word.is_empty());
            let is_question = sentence.ends_with('?');
            let lower = sentence.to_lowercase();
            if (!is_question && first.is_some_and(|word| OPENINGS.contains(&word)))
                || PHRASES.iter().any(|phrase| lower.contains(phrase))
            {
                wrong.push(format!("{}: {sentence}", path.display()));
            }
        }
    }
    assert!(count > 1_000, "only {count} sentences");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_documentation_is_short() {
    let words = documents()
        .iter()
        .filter(|(path, _)| {
            let name = path.file_name().expect("a name").to_string_lossy();
            !REFERENCES.contains(&&*name)
        })
        .map(|(_, text)| text.split_whitespace().count())
        .sum::<usize>();
    assert!(words <= MOST_WORDS, "{words} words");
}
