//! The reference of error codes: `host/docs/errors.md` has the table that `ErrorCode` gives.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use weir_errors::ErrorCode;

fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the workspace")
}

fn table() -> String {
    let mut table =
        "| Status | Code | Meaning | The client should |\n|---|---|---|---|\n".to_owned();
    for code in ErrorCode::ALL {
        let (status, name) = (code.status().as_u16(), code.as_str());
        let (meaning, advice) = (code.meaning(), code.advice());
        table += &format!("| {status} | `{name}` | {meaning} | {advice} |\n");
    }
    table
}

#[test]
fn the_reference_lists_every_code() {
    let path = root().join("host/docs/errors.md");
    let reference = fs::read_to_string(&path).expect("the reference");
    let table = table();
    assert!(
        reference.contains(&table),
        "{} should have this table:\n{table}",
        path.display()
    );
}

#[test]
fn codes_are_sorted_unique_and_explained() {
    let codes: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let sorted: BTreeSet<_> = codes.iter().copied().collect();
    assert!(codes.iter().copied().eq(sorted), "{codes:?}");
    for code in ErrorCode::ALL {
        let is_error = code.status().is_client_error() || code.status().is_server_error();
        assert!(is_error, "{code:?}");
        for sentence in [code.meaning(), code.advice()] {
            assert!(sentence.ends_with('.'), "{code:?}: {sentence}");
        }
    }
}

/// The documentation of an endpoint names codes in backticks: `UNKNOWN_SLOT`.
#[test]
fn the_api_document_names_known_codes_only() {
    let known: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let mut named = 0;
    let mut folders: Vec<PathBuf> = vec![root().join("host")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).expect("UTF-8");
                for line in text.lines().filter(|line| line.contains("(status = ")) {
                    for code in line.split('`').skip(1).step_by(2) {
                        if !code
                            .bytes()
                            .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
                        {
                            continue;
                        }
                        assert!(known.contains(code), "{}: {code}", path.display());
                        named += 1;
                    }
                }
            }
        }
    }
    assert!(named > 50, "only {named}");
}
