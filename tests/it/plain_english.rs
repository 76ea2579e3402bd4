//! Documentation, comments and texts for users are plain English, as far as a program can tell.
//!
//! A sentence that begins with a pronoun or a question word hides its subject: "What is revoked is refused" for "Revoked keys are
//! rejected". This test refuses such sentences and some words without a plain meaning. It reads Markdown, comments, help and error
//! messages of commands, messages of the API, and pages of the console.

use std::fs;
use std::path::{Path, PathBuf};

use tests::source::{all_files, root};

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

/// Folders with texts.
const FOLDERS: [&str; 5] = ["host", "migrations", "plugins", "tests", "wit"];

/// Files with texts outside of these folders.
const FILES: [&str; 10] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "Cargo.toml",
    "clippy.toml",
    "rust-toolchain.toml",
    ".cargo/config.toml",
    ".ci/run",
];

/// Folders whose files must not change: `tests/samples.sha256` holds the bytes of sample projects, and `wit/README.md` explains
/// frozen contracts. Files of `import_litellm` are LiteLLM's own, and `2026-11-27` has databases of a release. The comments of migrations
/// must not change either, so SQL is not read.
const UNCHANGEABLE: [&str; 4] = ["2026-11-27", "import_litellm", "samples", "since-v0.2.0"];

/// Words of one page that people write. A longer page is two readers' tasks. The references are tables that tests compare with
/// runs or with the code.
const MOST_WORDS: usize = 2_700;

const REFERENCES: [&str; 3] = ["dialects.md", "errors.md", "settings.md"];

/// All files that may have texts.
fn paths() -> Vec<PathBuf> {
    let below = FOLDERS
        .iter()
        .flat_map(|folder| all_files(&root().join(folder)));
    let is_changeable = |path: &PathBuf| {
        let mut parts = path.iter();
        !parts.any(|part| UNCHANGEABLE.iter().any(|folder| part == *folder))
    };
    let alone = FILES.iter().map(|file| root().join(file));
    below.filter(is_changeable).chain(alone).collect()
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "md")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The texts of a file in the form of a document, or `None` for other data.
fn text_of(path: &Path) -> Option<String> {
    // Scripts such as `tests/run` have no ending.
    let ending = path.extension().unwrap_or("sh".as_ref()).to_str()?;
    let source = match ending {
        "html" | "js" | "lua" | "md" | "mjs" | "py" | "rs" | "service" | "sh" | "toml" | "wat"
        | "wit" | "yaml" => read(path),
        _ => return None,
    };
    // Literals of tests are data.
    let is_test = path.starts_with(root().join("tests"));
    let has_messages = !is_test && path.iter().any(|part| part == "src");
    Some(match ending {
        "md" => source,
        "html" => without_tags(&source),
        "rs" if has_messages => comments(&source, "//") + &messages(&source),
        "rs" | "wit" | "js" | "mjs" => comments(&source, "//"),
        "wat" => comments(&source, ";;"),
        "lua" => comments(&source, "--"),
        _ => comments(&source, "#"),
    })
}

/// The comments of a source, with an empty line between runs of comment lines.
///
/// A text in quotes may pass for a comment at the end of a line. Then the test checks it, too.
fn comments(source: &str, mark: &str) -> String {
    let at_the_end = format!(" {mark} ");
    let mut text = String::new();
    for line in source.lines() {
        match line.trim_start().strip_prefix(mark) {
            Some(comment) => {
                let comment = comment.trim_start_matches(['/', '!']);
                // A mark without a space comments out a setting.
                if comment.starts_with(' ') {
                    text += comment;
                }
            }
            None => {
                if let Some((_, comment)) = line.split_once(&at_the_end) {
                    text += "\n";
                    text += comment;
                    text += "\n";
                }
            }
        }
        text += "\n";
    }
    text
}

/// The string literals of a source that have more than one word.
///
/// A quotation mark in an unusual place, such as a comment at the end of a line, swaps code and literals from there on. The test
/// then finds less.
fn messages(source: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code: Vec<_> = source.lines().filter(is_code).collect();
    let code = code.join("\n").replace("\\\n", " ").replace("\\\\", "");
    let code = code.replace("\\\"", "").replace("'\"'", "");
    let literals = code.split('"').skip(1).step_by(2);
    let texts = literals.filter(|literal| literal.contains(' '));
    texts
        .map(|text| format!("\n\n{}", text.replace("\\n", "\n")))
        .collect()
}

/// The text of a page, without tags and template code.
fn without_tags(page: &str) -> String {
    let mut text = String::new();
    let mut until = None;
    for letter in page.chars() {
        match (until, letter) {
            (None, '<') => until = Some('>'),
            (None, '{') => until = Some('}'),
            (None, '}') => {}
            (None, _) => text.push(letter),
            (Some(end), _) if end == letter => {
                until = None;
                text.push('\n');
            }
            (Some(_), _) => {}
        }
    }
    text
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
    for path in paths() {
        let Some(text) = text_of(&path) else {
            continue;
        };
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
    assert!(count > 20_000, "only {count} sentences");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pages_of_the_documentation_are_short() {
    let counted = paths().into_iter().filter(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        is_document(path) && !REFERENCES.contains(&&*name)
    });
    for path in counted {
        let words = read(&path).split_whitespace().count();
        assert!(words <= MOST_WORDS, "{}: {words} words", path.display());
    }
}

#[test]
fn comments_and_messages_are_found() {
    let source = r#"
/// A key.
// What is this? It goes on,
// of the same comment.
#[error("first \
         part")]
let wait = 5; // The unit is seconds.
//off
println!("Two words: \"{x}\".\nNext"); let key = "key";
"#;
    let found = comments(source, "//") + &messages(source);
    assert_eq!(
        sentences(&found),
        [
            "A key.",
            "What is this?",
            "It goes on, of the same comment.",
            "The unit is seconds.",
            "first           part",
            "Two words: {x}.",
            "Next",
        ]
    );
    let page = "<p class=\"a\">Hi {{ name }}, <b>you</b>.</p>\n\n<p>Bye.</p>";
    assert_eq!(sentences(&without_tags(page)), ["Hi , you .", "Bye."]);
}
