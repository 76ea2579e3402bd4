//! The rows of `host/docs/settings.md` repeat the doc comments of the settings' fields.
//!
//! The comment of a field is `{meaning} Default: {default}.` or `{meaning} Required.`; the row of the reference has the field's name,
//! the default and the meaning.

use std::collections::BTreeSet;
use std::fs;

use tests::source::{files, root};

/// Fields of settings that no configuration file has, or whose table has a section of its own.
const NOT_IN_A_TABLE: [&str; 6] = [
    "checkpoint_every",
    "longest_request",
    "publishers",
    "renew_every",
    "tls",
    "valid_for",
];

/// The fields of a source file with their doc comments, each on one line.
fn fields(text: &str) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(part) = line.strip_prefix("///") {
            comment.push(part.trim());
        } else if !line.starts_with("#[") {
            let name = line.rsplit_once(' ').map_or(line, |(before, _)| before);
            let name = line.split_once(':').map_or(name, |(before, _)| before);
            let name = name.rsplit(' ').next().unwrap_or_default();
            if !comment.is_empty() {
                fields.push((name.to_owned(), comment.join(" ")));
            }
            comment.clear();
        }
    }
    fields
}

/// Name, default and meaning of each setting of the reference.
fn rows() -> Vec<[String; 3]> {
    let reference = root().join("host/docs/settings.md");
    let reference = fs::read_to_string(reference).expect("the reference");
    let mut rows = Vec::new();
    for line in reference.lines() {
        let Some(row) = line
            .strip_prefix("| `")
            .and_then(|row| row.strip_suffix(" |"))
        else {
            continue;
        };
        let mut cells = row.splitn(3, " | ");
        let mut next = || cells.next().expect("three cells").to_owned();
        let [name, default, meaning] = [next(), next(), next()];
        rows.push([name.trim_end_matches('`').to_owned(), default, meaning]);
    }
    rows
}

#[test]
fn the_reference_repeats_the_doc_comments() {
    let mut comments = BTreeSet::new();
    for path in files(&root().join("host"), "rs") {
        let text = fs::read_to_string(path).expect("UTF-8");
        comments.extend(fields(&text).into_iter().map(|(_, comment)| comment));
    }
    let rows = rows();
    assert!(rows.len() > 150, "only {} rows", rows.len());
    for [name, default, meaning] in rows {
        let optional = format!("{meaning} Default: {default}.");
        let required = format!("{meaning} Required.");
        assert!(
            comments.contains(&optional) || (default == "required" && comments.contains(&required)),
            "no field has the comment of `{name}`: {optional}"
        );
    }
}

#[test]
fn every_documented_setting_is_in_the_reference() {
    let rows = rows();
    let meanings: BTreeSet<_> = rows.iter().map(|[_, _, meaning]| &**meaning).collect();
    let mut settings = 0;
    for path in files(&root().join("host"), "rs") {
        let name = path.file_name().expect("a name").to_string_lossy();
        if name != "settings.rs" && name != "config.rs" {
            continue;
        }
        let text = fs::read_to_string(&path).expect("UTF-8");
        for (field, comment) in fields(&text) {
            let meaning = comment.split_once(" Default: ").map(|(meaning, _)| meaning);
            let meaning = meaning.or_else(|| comment.strip_suffix(" Required."));
            let Some(meaning) = meaning else { continue };
            settings += 1;
            assert!(
                meanings.contains(meaning) || NOT_IN_A_TABLE.contains(&&*field),
                "{}: `{field}` is not in the reference",
                path.display()
            );
        }
    }
    assert!(settings > 100, "only {settings}");
}
