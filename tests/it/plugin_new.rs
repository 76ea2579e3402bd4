//! `weir plugin new`, `build` and `wit`: from nothing to a component that passes its checks.

use std::fs;
use std::path::Path;
use std::process::Output;

use wit_parser::Resolve;

use crate::cli::{run, text, weir};

const KINDS: [&str; 3] = ["adapter", "filter", "tool"];

fn made(folder: &Path, name: &str, kind: &str, lang: &str) -> Output {
    let arguments = ["plugin", "new", name, "--kind", kind, "--lang", lang];
    let output = run(folder, &arguments);
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn a_project_has_its_own_name_and_all_that_it_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    for (lang, source) in [("rust", "src/lib.rs"), ("js", ""), ("python", "")] {
        for kind in KINDS {
            let name = format!("my-{lang}-{kind}");
            let told = text(&made(folder.path(), &name, kind, lang).stdout);
            assert!(told.contains(&format!("dist/{name}.wasm")), "{told}");
            let project = folder.path().join(&name);
            let source = match lang {
                "rust" => source.to_owned(),
                "js" => format!("{kind}.js"),
                _ => format!("{kind}.py"),
            };
            for file in [
                &*source,
                "plugin.toml",
                "README.md",
                ".gitignore",
                ".github/workflows/check.yml",
                "wit/weir.wit",
            ] {
                let path = project.join(file);
                let content = fs::read_to_string(&path)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                assert!(
                    !content.to_lowercase().contains("acme") || file == "README.md",
                    "{file}"
                );
            }
            let recordings = fs::read_dir(project.join("recordings")).expect("recordings");
            assert!(recordings.count() >= 4, "{name}");
            let manifest = fs::read_to_string(project.join("plugin.toml")).expect("TOML");
            assert!(manifest.contains(&format!("\"{name}\"")), "{manifest}");
            assert!(manifest.contains(kind), "{manifest}");
            assert_eq!(
                project.join("vendor/weir-sdk/src/lib.rs").exists(),
                lang == "rust"
            );
        }
    }
}

/// A project's imports are in its own copy of the contract, and git ignores the gateway's files there.
#[test]
fn a_project_names_the_contract_that_it_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut named = 0;
    for lang in ["rust", "js", "python"] {
        for kind in KINDS {
            let name = format!("my-{lang}-{kind}");
            made(folder.path(), &name, kind, lang);
            let project = folder.path().join(&name);
            let read = |file: &str| fs::read_to_string(project.join(file)).expect("a file");
            let contract = read("wit/weir.wit");
            let package = contract.strip_prefix("package weir:plugin@");
            let (version, _) = package.and_then(|rest| rest.split_once(';')).expect("WIT");
            let source = match lang {
                "rust" => "src/lib.rs".to_owned(),
                "js" => format!("{kind}.js"),
                _ => format!("{kind}.py"),
            };
            for import in read(&source).split("weir:plugin/").skip(1) {
                let import = import.split(['"', ' ', '\n']).next().expect("a name");
                let (_, of) = import.split_once('@').unwrap_or((import, version));
                assert_eq!(of, version, "{name}: {import}");
                named += 1;
            }
            let ignored = read(".gitignore");
            assert!(ignored.lines().any(|line| line == "/.weir"), "{ignored}");
        }
    }
    assert!(named > 0, "a project in JavaScript imports by version");
}

#[test]
fn a_project_is_made_only_where_there_is_none_and_by_a_sound_name() {
    let folder = tempfile::tempdir().expect("a folder");
    made(folder.path(), "once", "tool", "js");
    for (name, complaint) in [
        ("once", "once exists"),
        ("Upper", "is not a valid name"),
        ("../elsewhere", "is not a valid name"),
        ("7up", "is not a valid name"),
    ] {
        let output = run(folder.path(), &["plugin", "new", name]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(complaint), "{output:?}");
    }
    let output = run(
        folder.path(),
        &["plugin", "new", "twice", "--folder", "here"],
    );
    assert!(output.status.success(), "{output:?}");
    assert!(folder.path().join("here/Cargo.toml").exists());
}

#[test]
fn the_contract_is_one_file_that_says_what_its_files_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["plugin", "wit"]);
    assert!(output.status.success(), "{output:?}");
    let mut whole = Resolve::default();
    let package = whole
        .push_str("weir.wit", &text(&output.stdout))
        .expect("it is WIT");
    let mut apart = Resolve::default();
    let (files, _) = apart
        .push_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit"))
        .expect("it is WIT");
    let names = |resolve: &Resolve, id| {
        let package = &resolve.packages[id];
        let mut names: Vec<_> = package
            .interfaces
            .keys()
            .chain(package.worlds.keys())
            .cloned()
            .collect();
        names.sort();
        (package.name.to_string(), names, resolve.types.len())
    };
    assert_eq!(names(&whole, package), names(&apart, files));
}

#[test]
fn what_is_no_project_is_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let complaint = || {
        let output = run(folder.path(), &["plugin", "build"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stderr)
    };
    assert!(complaint().contains("is this a plugin's folder?"));
    fs::write(
        folder.path().join("plugin.toml"),
        "name = \"x\"\nkind = \"toy\"\n",
    )
    .expect("writable");
    assert!(complaint().contains("kind = \"adapter\""));
    fs::write(
        folder.path().join("plugin.toml"),
        "name = \"x\"\nkind = \"tool\"\n",
    )
    .expect("writable");
    assert!(complaint().contains("requirements.txt"));
}

/// Takes minutes, and needs the languages' own tools: `tests/run --samples` installs them and runs it.
#[test]
#[ignore = "takes minutes and the network: tests/run --samples"]
fn projects_in_each_language_build_and_pass_their_checks() {
    let folder = tempfile::tempdir().expect("a folder");
    for lang in ["rust", "js", "python"] {
        for kind in KINDS {
            let name = format!("my-{lang}-{kind}");
            made(folder.path(), &name, kind, lang);
            let project = folder.path().join(&name);
            let done = |arguments: &[&str]| {
                let mut command = weir(&project);
                // Components with Python compile slowly beside other tests.
                command.env("WEIR_PLUGINS__COMPILE__TIMEOUT_MS", "600000");
                // Compilers and installers have their caches there.
                if let Some(home) = std::env::var_os("HOME") {
                    command.env("HOME", home);
                }
                let output = command.args(arguments).output().expect("weir runs");
                assert!(output.status.success(), "{name} {arguments:?}: {output:?}");
                text(&output.stdout)
            };
            done(&["plugin", "build"]);
            let component = format!("dist/{name}.wasm");
            let found = done(&["plugin", "check", &component, "--recordings", "recordings"]);
            assert_eq!(
                found.matches("as in its snapshot").count(),
                2,
                "{name}: {found}"
            );
            if lang == "rust" {
                let tested = std::process::Command::new("cargo")
                    .arg("test")
                    .current_dir(&project)
                    .env_remove("CARGO_TARGET_DIR")
                    .env_remove("RUSTC_WORKSPACE_WRAPPER")
                    .output()
                    .expect("cargo runs");
                assert!(tested.status.success(), "{name}: {tested:?}");
            }
        }
    }
}
