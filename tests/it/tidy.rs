//! Rules over the source that no compiler checks.

mod circles;
mod imports;
mod modules;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;

use tests::source::{files, root};

use self::imports::Import;
use self::modules::Modules;

/// Each crate of the host, and the crates that it may depend on.
const WALLS: [(&str, &[&str]); 14] = [
    ("weir-bundled", &["weir", "weir-plugins"]),
    (
        "weir",
        &[
            "weir-author",
            "weir-dialects",
            "weir-egress",
            "weir-errors",
            "weir-ledger",
            "weir-outgoing",
            "weir-payments",
            "weir-plugins",
            "weir-sandbox",
            "weir-storage",
            "weir-telemetry",
            "weir-upstream",
        ],
    ),
    (
        "weir-author",
        &[
            "weir-dialects",
            "weir-ledger",
            "weir-outgoing",
            "weir-plugins",
            "weir-sandbox",
            "weir-storage",
            "weir-upstream",
        ],
    ),
    (
        "weir-payments",
        &[
            "weir-egress",
            "weir-errors",
            "weir-ledger",
            "weir-outgoing",
            "weir-storage",
            "weir-telemetry",
        ],
    ),
    (
        "weir-plugins",
        &[
            "weir-errors",
            "weir-ledger",
            "weir-sandbox",
            "weir-storage",
            "weir-telemetry",
        ],
    ),
    (
        "weir-upstream",
        &[
            "weir-dialects",
            "weir-errors",
            "weir-ledger",
            "weir-outgoing",
            "weir-sandbox",
            "weir-storage",
            "weir-telemetry",
        ],
    ),
    (
        "weir-telemetry",
        &["weir-outgoing", "weir-sandbox", "weir-storage"],
    ),
    (
        "weir-dialects",
        &["weir-errors", "weir-ledger", "weir-sandbox"],
    ),
    ("weir-outgoing", &[]),
    ("weir-errors", &["weir-storage"]),
    ("weir-egress", &["weir-storage"]),
    ("weir-ledger", &["weir-storage"]),
    ("weir-sandbox", &["weir-storage"]),
    ("weir-storage", &[]),
];

/// The crates below everything that answers clients: they know no HTTP server.
const WITHOUT_HTTP_SERVER: [&str; 6] = [
    "weir-egress",
    "weir-ledger",
    "weir-outgoing",
    "weir-sandbox",
    "weir-storage",
    "weir-telemetry",
];

/// The layers of the crate `weir`, the lowest first, by its modules. A module may import the layers below its own.
const LAYERS: [&[&str]; 5] = [
    &[
        "admission",
        "audit",
        "content_log",
        "context",
        "cors",
        "csv_export",
        "failed_requests",
        "json",
        "limits",
        "listen_address",
        "log_export",
        "metrics",
        "node",
        "query",
        "request",
        "schemas",
        "shares",
        "small_body",
        "tls",
        "traffic",
        "write_behind",
    ],
    // Features.
    &[
        "billing",
        "catalog",
        "identity",
        "inference",
        "keys",
        "mcp",
        "organisations",
        "payments",
        "plugins",
        "privacy",
        "recordings",
        "scim",
        "sessions",
        "swarm",
        "tasks",
        "tools",
        "vouchers",
    ],
    &["config"],
    &["app"],
    &[
        "admin",
        "cli",
        "console",
        "monitoring",
        "openapi",
        "request_layer",
        "router",
        "server",
    ],
];

#[test]
fn the_root_holds_what_the_readme_maps() {
    let known = [
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "deny.toml",
        "host",
        "migrations",
        "plugins",
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
        for file in [
            "Cargo.toml",
            "plugin.toml",
            "src/lib.rs",
            "src/translate.rs",
        ] {
            assert!(
                folder.join(file).exists(),
                "{} lacks {file}",
                folder.display()
            );
        }
    }
}

#[test]
fn migrations_have_the_same_names_in_every_folder() {
    let names = |folder: &Path| -> Vec<String> {
        files(folder, "sql")
            .iter()
            .map(|path| {
                path.file_name()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned()
            })
            .collect()
    };
    let folders: Vec<_> = fs::read_dir(root().join("migrations"))
        .expect("the migrations")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .collect();
    let first = names(folders.first().expect("a folder"));
    assert!(!first.is_empty());
    for folder in &folders {
        assert_eq!(names(folder), first, "{}", folder.display());
    }
    for (index, name) in first.iter().enumerate() {
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
    for (name, folder) in &crates {
        let wall = WALLS.iter().find(|(known, _)| known == name);
        let (_, allowed) = wall.unwrap_or_else(|| panic!("{name} has no place among the crates"));
        let manifest = manifest(folder);
        for table in ["dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(table).and_then(toml::Value::as_table) else {
                continue;
            };
            for dependency in dependencies.keys().filter(|name| name.starts_with("weir")) {
                assert!(
                    allowed.contains(&&**dependency),
                    "{name} must not depend on {dependency}"
                );
            }
        }
    }
}

/// A library of the host, as its source describes it.
struct Library {
    name: String,
    modules: Modules,
    imports: Vec<Import>,
}

/// The libraries of the host. The tests below share them, because reading takes seconds.
static LIBRARIES: LazyLock<Vec<Library>> = LazyLock::new(|| {
    thread::scope(|scope| {
        let readers: Vec<_> = host_crates()
            .into_iter()
            .map(|(name, folder)| scope.spawn(move || Library::read(name, &folder.join("src"))))
            .collect();
        readers
            .into_iter()
            .map(|reader| reader.join().expect("a readable library"))
            .collect()
    })
});

impl Library {
    fn read(name: String, src: &Path) -> Self {
        let modules = modules::read(&|file| fs::read_to_string(src.join(file)).ok());
        Self {
            name,
            imports: imports::between(&modules),
            modules,
        }
    }
}

fn weir() -> &'static Library {
    let found = LIBRARIES.iter().find(|library| library.name == "weir");
    found.expect("the library")
}

/// Fails with the descriptions of all circles that `find` finds in the libraries.
fn assert_no_circles(find: impl Fn(&[Import]) -> Vec<String>) {
    let mut found = String::new();
    for Library { name, imports, .. } in &*LIBRARIES {
        for circle in find(imports) {
            found += &format!("\n{name}: {circle}");
        }
    }
    assert!(found.is_empty(), "{found}");
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    assert_no_circles(circles::of_files);
}

#[test]
fn no_folders_import_each_other_in_a_circle() {
    assert_no_circles(circles::of_folders);
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
fn modules_of_weir_import_lower_layers_only() {
    let upward = circles::upward(&weir().imports, &LAYERS);
    assert!(upward.is_empty(), "\n{}", upward.join("\n"));
}

#[test]
fn crates_below_those_that_answer_clients_know_no_http_server() {
    for Library { name, modules, .. } in &*LIBRARIES {
        if !WITHOUT_HTTP_SERVER.contains(&&**name) {
            continue;
        }
        for module in modules.values() {
            for word in ["axum", "StatusCode"] {
                assert!(
                    !module.words.contains(word),
                    "{} of {name} speaks of {word}",
                    module.file
                );
            }
        }
    }
}

/// Except the vendors' endpoints.
#[test]
fn dialects_alone_name_vendors() {
    for module in weir().modules.values() {
        let uses = module.uses.iter().map(|it| &it.path);
        let paths = module.paths.iter().map(|it| &it.segments);
        let mut segments = uses.chain(paths).flatten();
        assert!(
            module.file.starts_with("inference/vendors/")
                || module.file == "router.rs"
                || !segments.any(
                    |segment| segment.starts_with("openai") || segment.starts_with("anthropic")
                ),
            "{} names a vendor's dialect",
            module.file
        );
    }
}
