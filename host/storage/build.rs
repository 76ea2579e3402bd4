//! Lists the migrations for the crate to embed.
//!
//! `sqlx::migrate!` would compile SQLite and both database drivers a second time, for the compiler (123 more units in a
//! release build), and would still need a build script that notices new migrations.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../..")
        .canonicalize()
        .expect("the crate lies in the workspace");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let migrations = root.join("migrations");
    println!("cargo::rerun-if-changed={}", migrations.display());
    for database in ["sqlite", "postgres"] {
        let list = list_migrations(&migrations.join(database));
        let path = out.join(format!("migrations_{database}.rs"));
        fs::write(&path, list).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

fn list_migrations(folder: &Path) -> String {
    let entries: String = sorted_entries(folder)
        .iter()
        .map(|path| {
            let stem = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .expect("UTF-8");
            let (number, name) = stem.split_once('_').expect("NNNN_verb_noun.sql");
            let number: i64 = number.parse().expect("NNNN_verb_noun.sql");
            format!(
                "({number}, {:?}, include_str!({path:?})),\n",
                name.replace('_', " ")
            )
        })
        .collect();
    format!("&[\n{entries}]")
}

fn sorted_entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    paths.sort();
    paths
}
