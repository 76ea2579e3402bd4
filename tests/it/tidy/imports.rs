//! Which file of a crate imports which other, read from its source: `use` trees, and paths that begin with `crate` or
//! `super` in the code. What is only for unit tests is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The files of a crate by their module's path, e.g. `identity/store`, and what each imports.
pub(super) struct Imports(BTreeMap<String, BTreeSet<String>>);

impl Imports {
    /// Reads a crate's `src`.
    pub(super) fn of(src: &Path) -> Self {
        let files = super::files(src, "rs").into_iter().map(|path| {
            let name = path.strip_prefix(src).expect("below it").with_extension("");
            let name = name.to_str().expect("UTF-8");
            let module = name.strip_suffix("/mod").unwrap_or(name).to_owned();
            (module, fs::read_to_string(&path).expect("UTF-8"))
        });
        Self::in_files(files.collect())
    }

    fn in_files(files: BTreeMap<String, String>) -> Self {
        let imports = files.iter().map(|(module, text)| {
            let paths = paths(&tokens(text));
            let found = paths
                .iter()
                .filter_map(|path| resolve(module, path, &files))
                .filter(|other| other != module);
            (module.clone(), found.collect())
        });
        Self(imports.collect())
    }

    /// Files that import one another, each set of them in a line of its own. A parent and its child may: `mod.rs`
    /// names its files, and they take its types.
    pub(super) fn circles(&self) -> Vec<Vec<String>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> = self
            .0
            .keys()
            .map(|module| (&**module, self.reached_from(module)))
            .collect();
        let mut circles: Vec<Vec<String>> = Vec::new();
        for (module, from) in &reached {
            if circles.iter().flatten().any(|known| known == module) {
                continue;
            }
            let back = |other: &&&str| reached[**other].contains(module);
            let circle: Vec<_> = from.iter().filter(back).map(|m| (*m).to_owned()).collect();
            if circle.len() > 1 {
                circles.push(circle);
            }
        }
        circles
    }

    fn reached_from<'a>(&'a self, module: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut next = vec![module];
        while let Some(module) = next.pop() {
            for other in &self.0[module] {
                if !is_parent_and_child(module, other) && reached.insert(&**other) {
                    next.push(other);
                }
            }
        }
        reached
    }
}

fn is_parent_and_child(one: &str, other: &str) -> bool {
    let below = |child: &str, parent: &str| {
        child
            .strip_prefix(parent)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    below(one, other) || below(other, one)
}

/// The file that a path leads to: the longest beginning of it that is one.
fn resolve(module: &str, path: &[String], files: &BTreeMap<String, String>) -> Option<String> {
    let mut at: Vec<&str> = match module {
        "lib" | "main" => Vec::new(),
        _ => module.split('/').collect(),
    };
    for segment in path {
        match &**segment {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop();
            }
            name => at.push(name),
        }
    }
    while !at.is_empty() {
        let name = at.join("/");
        if files.contains_key(&name) {
            return Some(name);
        }
        at.pop();
    }
    None
}

/// Words and punctuation of the code that is not for unit tests, without comments and literals.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\n").next().unwrap_or_default();
    let text: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&character) = text.get(at) {
        let rest = &text[at..];
        at += match character {
            '/' if rest.get(1) == Some(&'/') => length_until(rest, "\n"),
            '/' if rest.get(1) == Some(&'*') => length_until(rest, "*/"),
            '"' => string_length(rest),
            // A character; else a lifetime.
            '\'' if rest.get(1) == Some(&'\\') => 3 + length_until(&rest[3..], "'"),
            '\'' if rest.get(2) == Some(&'\'') => 3,
            'r' if raw_string_length(rest).is_some() => raw_string_length(rest).unwrap_or(1),
            _ if character.is_alphanumeric() || character == '_' => {
                let in_word = |c: &&char| c.is_alphanumeric() || **c == '_';
                let word: String = rest.iter().take_while(in_word).collect();
                let length = word.chars().count();
                tokens.push(word);
                length
            }
            ':' if rest.get(1) == Some(&':') => {
                tokens.push("::".into());
                2
            }
            _ => {
                if !character.is_whitespace() {
                    tokens.push(character.to_string());
                }
                1
            }
        };
    }
    tokens
}

fn length_until(text: &[char], end: &str) -> usize {
    let end: Vec<char> = end.chars().collect();
    let found = text.windows(end.len()).position(|window| window == end);
    found.map_or(text.len(), |found| found + end.len())
}

fn string_length(text: &[char]) -> usize {
    let mut at = 1;
    while let Some(&character) = text.get(at) {
        at += match character {
            '\\' => 2,
            '"' => return at + 1,
            _ => 1,
        };
    }
    text.len()
}

fn raw_string_length(text: &[char]) -> Option<usize> {
    let hashes = text[1..].iter().take_while(|&&c| c == '#').count();
    if text.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    Some(2 + hashes + length_until(&text[2 + hashes..], &end))
}

/// All paths from `crate`, `super` and, in `use`, `self`.
pub(super) fn paths(tokens: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let begins_path = tokens.get(at + 1).is_some_and(|next| next == "::");
        if token == "use" {
            at = use_tree(tokens, at + 1, &[], &mut paths);
        } else if begins_path && matches!(&**token, "crate" | "super") {
            let mut path = vec![token.clone()];
            while tokens.get(at + 1).is_some_and(|next| next == "::")
                && let Some(segment) = tokens.get(at + 2)
            {
                path.push(segment.clone());
                at += 2;
            }
            paths.push(path);
        }
        at += 1;
    }
    let inside = |path: &Vec<String>| {
        let first = path.first().map(String::as_str);
        matches!(first, Some("crate" | "super" | "self"))
    };
    paths.retain(inside);
    paths
}

/// Reads one branch of a `use`, and returns where it ends.
fn use_tree(
    tokens: &[String],
    mut at: usize,
    before: &[String],
    paths: &mut Vec<Vec<String>>,
) -> usize {
    let mut path = before.to_vec();
    while let Some(token) = tokens.get(at) {
        match &**token {
            "::" => {}
            "{" => {
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = use_tree(tokens, at + 1, &path, paths);
                }
                // What surrounds the braces is no path itself.
                return at + 1;
            }
            "," | "}" | ";" => break,
            // The name that it gets here says nothing of where it is from.
            "as" => at += 1,
            segment => path.push(segment.to_owned()),
        }
        at += 1;
    }
    paths.push(path);
    at
}

#[test]
fn paths_are_read_from_nested_uses_and_from_the_code() {
    let text = "use crate::a::{self, b::{C, D as E}, f};\nuse super::g;\nuse std::fmt;\n// use crate::no;\n\
                pub(crate) fn x(c: char) -> crate::h::I { \"crate::no\"; if c == '\"' { super::j() } }\n\
                #[cfg(test)]\nmod tests { use crate::no; }\n";
    let paths: Vec<_> = paths(&tokens(text))
        .iter()
        .map(|path| path.join("::"))
        .collect();
    assert_eq!(
        paths,
        [
            "crate::a::self",
            "crate::a::b::C",
            "crate::a::b::D",
            "crate::a::f",
            "super::g",
            "crate::h::I",
            "super::j",
        ]
    );
}

#[test]
fn circles_are_found_but_between_parent_and_child() {
    let files = [
        ("lib", "mod a; mod b;"),
        ("a", "mod c; use self::c::C;"),
        ("a/c", "use super::A; use crate::b;"),
        ("b", "use crate::d::D;"),
        ("d", "fn x() { crate::a::c::y() }"),
        ("e", "use crate::a;"),
    ];
    let files = files.map(|(module, text)| (module.to_owned(), text.to_owned()));
    let circles = Imports::in_files(files.into()).circles();
    assert_eq!(circles, [["a/c", "b", "d"]]);
}
