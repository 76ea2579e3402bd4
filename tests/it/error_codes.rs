//! The reference of error codes: `host/docs/errors.md` has the table of `ErrorCode`.

use std::collections::BTreeSet;
use std::fs;

use tests::source::{files, root};
use weir_errors::ErrorCode;

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
    for path in files(&root().join("host"), "rs") {
        let text = fs::read_to_string(&path).expect("UTF-8");
        for line in text.lines().filter(|line| line.contains("(status = ")) {
            for code in line.split('`').skip(1).step_by(2) {
                let is_code = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
                if code.bytes().all(is_code) {
                    assert!(known.contains(code), "{}: {code}", path.display());
                    named += 1;
                }
            }
        }
    }
    assert!(named > 50, "only {named}");
}
