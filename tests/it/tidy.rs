//! Rules over the source that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

use tests::source::{files, migrations, root};

/// The crates of the host, in rows: a crate may depend on those of lower rows only.
const ROWS: [&[&str]; 16] = [
    &["weir-bundled"],
    &["weir"],
    &["weir-console", "weir-importing"],
    &["weir-app"],
    &["weir-swarms"],
    &["weir-inference"],
    &["weir-accounts"],
    &["weir-catalog"],
    &["weir-tools"],
    &["weir-identity"],
    &["weir-request", "weir-author"],
    &["weir-kinds", "weir-payments", "weir-plugins"],
    &["weir-upstream"],
    &["weir-dialects", "weir-telemetry"],
    &[
        "weir-egress",
        "weir-encoder",
        "weir-errors",
        "weir-ledger",
        "weir-outgoing",
        "weir-sandbox",
    ],
    &["weir-storage"],
];

/// The crates below everything that answers clients: they know no HTTP server.
const WITHOUT_HTTP_SERVER: [&str; 7] = [
    "weir-egress",
    "weir-encoder",
    "weir-ledger",
    "weir-outgoing",
    "weir-sandbox",
    "weir-storage",
    "weir-telemetry",
];

#[test]
fn the_root_holds_what_the_readme_maps() {
    let known = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "SECURITY.md",
        "clippy.toml",
        "deny.toml",
        "host",
        "migrations",
        "plugins",
        "rust-toolchain.toml",
        "target",
        "tests",
        "wit",
    ];
    for entry in fs::read_dir(root()).expect("the root") {
        let name = entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("UTF-8");
        assert!(
            name.starts_with('.') || known.contains(&&*name),
            "{name} has no place in the root"
        );
    }
}

#[test]
fn every_module_opens_with_what_it_is_for() {
    let sources = ["host", "plugins", "tests"].map(|folder| files(&root().join(folder), "rs"));
    for path in sources.iter().flatten() {
        let text = fs::read_to_string(path).expect("UTF-8");
        assert!(
            text.starts_with("//! "),
            "{} does not say what it is for",
            path.display()
        );
    }
}

#[test]
fn every_adapter_has_its_four_files() {
    for entry in fs::read_dir(root().join("plugins/adapters")).expect("the adapters") {
        let folder = entry.expect("an entry").path();
        for file in ["Cargo.toml", "plugin.toml", "src/lib.rs"] {
            assert!(
                folder.join(file).exists(),
                "{} lacks {file}",
                folder.display()
            );
        }
        let module = ["src/translate.rs", "src/translate/mod.rs"];
        assert!(
            module.iter().any(|file| folder.join(file).exists()),
            "{} lacks the module `translate`",
            folder.display()
        );
    }
}

#[test]
fn migrations_have_the_same_names_for_every_database() {
    let names = migrations("sqlite");
    assert_eq!(migrations("postgres"), names);
    assert!(!names.is_empty());
    for (index, name) in names.iter().enumerate() {
        assert!(
            name.starts_with(&format!("{:04}_", index + 1)),
            "{name} is out of line"
        );
    }
}

/// The name and the folder of each of the host's crates.
fn host_crates() -> Vec<(String, PathBuf)> {
    let folders = fs::read_dir(root().join("host")).expect("the host");
    let mut crates: Vec<_> = folders
        .map(|entry| entry.expect("an entry").path())
        .filter(|folder| folder.join("Cargo.toml").exists())
        .map(|folder| {
            let package = &manifest(&folder)["package"]["name"];
            (package.as_str().expect("a name").to_owned(), folder)
        })
        .collect();
    crates.sort();
    crates
}

fn manifest(folder: &Path) -> toml::Table {
    let text = fs::read_to_string(folder.join("Cargo.toml")).expect("UTF-8");
    text.parse().expect("a manifest is TOML")
}

#[test]
fn crates_depend_downward_only() {
    let crates = host_crates();
    assert!(crates.len() > 1, "{crates:?}");
    let row_of = |name: &str| {
        let row = ROWS.iter().position(|row| row.contains(&name));
        row.unwrap_or_else(|| panic!("{name} has no place among the crates"))
    };
    for (name, folder) in &crates {
        let manifest = manifest(folder);
        for table in ["dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(table).and_then(toml::Value::as_table) else {
                continue;
            };
            for dependency in dependencies.keys().filter(|name| name.starts_with("weir")) {
                assert!(
                    row_of(name) < row_of(dependency),
                    "{name} must not depend on {dependency}"
                );
            }
        }
    }
}

/// Returns the lines of a source file without its comments.
fn code_lines(path: &Path) -> Vec<String> {
    let source = fs::read_to_string(path).expect("text");
    let lines = source.lines().map(str::trim_start);
    let code = lines.filter(|line| !line.starts_with("//"));
    code.map(str::to_owned).collect()
}

/// Each other write would block if the reader stops reading: a request, a probe or the shutdown would wait for it.
#[test]
fn only_the_logs_thread_writes_to_standard_error_and_output() {
    const WRITERS: [&str; 5] = [
        // The log, and whether a terminal shows it.
        "host/telemetry/src/lines.rs",
        "host/telemetry/src/lib.rs",
        // Commands, and the greeting of development mode, which has its own thread.
        "host/weir/src/cli",
        "host/author/src",
        // Children, whose output the gateway reads.
        "host/sandbox/src/child.rs",
    ];
    for path in files(&root().join("host"), "rs") {
        let name = path.strip_prefix(root()).expect("a file of ours");
        if WRITERS.iter().any(|known| name.starts_with(known)) {
            continue;
        }
        let source = fs::read_to_string(&path).expect("text");
        // Clippy refuses the macros that print.
        for output in ["io::stderr()", "io::stdout()"] {
            assert!(
                !source.contains(output),
                "{} writes to {output}",
                name.display()
            );
        }
    }
}

#[test]
fn crates_below_those_that_answer_clients_know_no_http_server() {
    for (name, folder) in host_crates() {
        if !WITHOUT_HTTP_SERVER.contains(&&*name) {
            continue;
        }
        for path in files(&folder.join("src"), "rs") {
            for word in ["axum::", "StatusCode"] {
                assert!(
                    !code_lines(&path).iter().any(|line| line.contains(word)),
                    "{} speaks of {word}",
                    path.display()
                );
            }
        }
    }
}

/// Except the vendors' endpoints.
#[test]
fn dialects_alone_name_vendors() {
    let above = ROWS.iter().take_while(|row| !row.contains(&"weir-author"));
    let above: Vec<_> = above.flat_map(|row| row.iter()).collect();
    for (name, folder) in host_crates() {
        if !above.contains(&&&*name) {
            continue;
        }
        for path in files(&folder.join("src"), "rs") {
            let file = path.strip_prefix(root()).expect("a file of ours");
            let is_known = file.starts_with("host/inference/src/vendors");
            let names_vendor = |line: &String| {
                let vendors = ["openai", "anthropic"];
                let imports = line.contains("weir_dialects");
                imports
                    && vendors
                        .iter()
                        .any(|vendor| line.contains(&format!("::{vendor}")))
            };
            assert!(
                is_known || !code_lines(&path).iter().any(names_vendor),
                "{} names a vendor's dialect",
                file.display()
            );
        }
    }
}
