//! Lists the migrations for the crate to embed.
//!
//! `sqlx::migrate!` would compile SQLite and both database drivers a second time, for the compiler (123 more units in a
//! release build), and would still need a build script that notices new migrations.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The words in braces of a migration for both databases, and their text for each. A database records the checksum of the
/// text, so released words keep their text.
const SQLITE_WORDS: [(&str, &str); 4] = [
    ("{bytes}", "BLOB"),
    ("{bytes_5}", "BLOB "),
    ("{int32}", "BIGINT "),
    ("{without_rowid}", " WITHOUT ROWID"),
];
const POSTGRES_WORDS: [(&str, &str); 4] = [
    ("{bytes}", "BYTEA"),
    ("{bytes_5}", "BYTEA"),
    ("{int32}", "INTEGER"),
    ("{without_rowid}", ""),
];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../..")
        .canonicalize()
        .expect("the crate lies in the workspace");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let migrations = root.join("migrations");
    println!("cargo::rerun-if-changed={}", migrations.display());
    for (database, words) in [("sqlite", SQLITE_WORDS), ("postgres", POSTGRES_WORDS)] {
        let mut paths = entries(&migrations.join("both"));
        paths.extend(entries(&migrations.join(database)));
        paths.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
        let list: String = paths.iter().map(|path| list_entry(path, &words)).collect();
        let path = out.join(format!("migrations_{database}.rs"));
        fs::write(&path, format!("&[\n{list}]"))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// Returns the number, the name and the text of a migration, as Rust.
fn list_entry(path: &Path, words: &[(&str, &str)]) -> String {
    let stem = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .expect("UTF-8");
    let (number, name) = stem.split_once('_').expect("NNNN_verb_noun.sql");
    let number: i64 = number.parse().expect("NNNN_verb_noun.sql");
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{stem}: {error}"));
    let text = words
        .iter()
        .fold(text, |text, (word, sql)| text.replace(word, sql));
    format!("({number}, {:?}, {text:?}),\n", name.replace('_', " "))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .collect()
}
