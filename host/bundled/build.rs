//! Builds the bundled plugins to Wasm and lists them for the crate to embed.
//!
//! The plugins are built by a cargo of their own. It gets a target folder of its own: in the outer one a
//! release build would wait for ever for the lock that its own parent holds.

mod sbom;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde::Deserialize;

use self::sbom::DependencyLists;

const TARGET: &str = "wasm32-wasip2";

/// `plugin.toml` in a plugin's folder.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    /// The slot that it fills.
    name: String,
    kind: Kind,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Adapter,
    Tool,
    Filter,
}

impl Kind {
    /// The folder below `plugins` where plugins of this kind are.
    fn folder(&self) -> &'static str {
        match self {
            Self::Adapter => "adapters",
            Self::Tool => "tools",
            Self::Filter => "filters",
        }
    }
}

struct Plugin {
    package: String,
    manifest: Manifest,
}

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../..")
        .canonicalize()
        .expect("the crate lies in the workspace");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for watched in ["plugins", "wit", "Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", root.join(watched).display());
    }
    // The features of dependencies, for the bill of materials.
    for manifest in sorted_entries(&root.join("host")) {
        let manifest = manifest.join("Cargo.toml");
        if manifest.exists() {
            println!("cargo::rerun-if-changed={}", manifest.display());
        }
    }
    let kinds = [Kind::Adapter, Kind::Tool, Kind::Filter].map(|kind| {
        let plugins = find_plugins(&root.join("plugins"), &kind);
        (kind, plugins)
    });
    write_conformance(&root, &out);
    write_samples(&root, &out);
    let plugins = || kinds.iter().flat_map(|(_, plugins)| plugins);
    let slots: Vec<_> = plugins()
        .map(|plugin| (&*plugin.package, &*plugin.manifest.name))
        .collect();
    let lists = DependencyLists::start(|| cargo(&root), &slots, TARGET, &out);
    let built = build_plugins(&root, plugins());
    let commit = find_commit(&root);
    // `cargo run` passes this variable to the program as well, which takes each `WEIR_` variable for a setting.
    println!("cargo::rustc-env=BUNDLED_COMMIT={commit}");
    let sbom = lists.document(&root, &slots, &commit);
    let sbom = miniz_oxide::deflate::compress_to_vec(sbom.as_bytes(), 9);
    fs::write(out.join("sbom"), sbom).expect("the folder can be written");
    for (kind, plugins) in &kinds {
        let list: String = plugins
            .iter()
            .map(|plugin| {
                let file = plugin.package.replace('-', "_") + ".wasm";
                let module = fs::read(built.join(&file)).expect("cargo has built it");
                let component = weir_encoder::encode(&module)
                    .unwrap_or_else(|error| panic!("making a component of {file}: {error:#}"));
                let file = out.join(file);
                fs::write(&file, component).expect("the folder can be written");
                let name = &plugin.manifest.name;
                format!("({name:?}, include_bytes!({file:?})),\n")
            })
            .collect();
        let file = format!("{}.rs", kind.folder());
        write(&out.join(file), &format!("&[\n{list}]"));
    }
}

/// Returns the commit of a release: the variable `WEIR_COMMIT`, which an image's build needs, else the repository's. A
/// development build has none, because each commit would build it again.
fn find_commit(root: &Path) -> String {
    println!("cargo::rerun-if-env-changed=WEIR_COMMIT");
    if let Ok(commit) = env::var("WEIR_COMMIT")
        && !commit.is_empty()
    {
        return commit;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .current_dir(root)
            .args(arguments)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().to_owned())
    };
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = is_release
        .then(|| {
            let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
            println!("cargo::rerun-if-changed={}", root.join(log).display());
            git(&["rev-parse", "HEAD"])
        })
        .flatten();
    commit.unwrap_or_else(|| "unknown".to_owned())
}

/// Lists the files that projects for plugins are made of.
fn write_samples(root: &Path, out: &Path) {
    let samples = root.join("plugins/samples");
    let embedded = |folder: &Path, file: &Path| {
        let path = file.strip_prefix(folder).expect("it lies in it");
        format!("({path:?}, include_str!({file:?})),\n")
    };
    let list: String = files_below(&samples)
        .iter()
        .map(|file| embedded(&samples, file))
        .collect();
    write(&out.join("samples.rs"), &format!("&[\n{list}]"));

    let sdk = root.join("plugins/sdk");
    let sources = files_below(&sdk.join("src"));
    let list: String = sources.iter().map(|file| embedded(&sdk, file)).collect();
    let manifest = standalone_manifest(root, &sdk);
    write(
        &out.join("sdk.rs"),
        &format!("&[\n(\"Cargo.toml\", {manifest:?}),\n{list}]"),
    );
}

/// A crate's manifest with what it takes from the workspace written out.
fn standalone_manifest(root: &Path, folder: &Path) -> String {
    let read = |folder: &Path| -> toml::Table {
        let text = fs::read_to_string(folder.join("Cargo.toml")).expect("a crate has a manifest");
        toml::from_str(&text).expect("cargo has read it already")
    };
    let workspace = &read(root)["workspace"];
    let mut manifest = read(folder);
    manifest.remove("lints");
    for (table, shared) in [
        ("package", &workspace["package"]),
        ("dependencies", &workspace["dependencies"]),
    ] {
        let entries = manifest[table].as_table_mut().expect("it is a table");
        for (name, value) in entries {
            if value.get("workspace").is_some() {
                *value = shared[name.as_str()].clone();
            }
        }
    }
    toml::to_string(&manifest).expect("it was TOML")
}

/// All files below a folder, but for what building the samples in place leaves behind.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    const LEFT_BEHIND: [&str; 6] = [
        "target",
        "node_modules",
        ".venv",
        "__pycache__",
        "dist",
        "vendor",
    ];
    let mut files = Vec::new();
    for path in sorted_entries(folder) {
        let is_left_behind = LEFT_BEHIND.iter().any(|name| path.ends_with(name));
        if !path.is_dir() {
            files.push(path);
        } else if !is_left_behind {
            files.extend(files_below(&path));
        }
    }
    files
}

/// Lists the requests and recorded answers that `weir plugin check` tries adapters with.
fn write_conformance(root: &Path, out: &Path) {
    let folder = root.join("tests/conformance");
    // Its snapshots, too, which cost a build that does nothing.
    println!("cargo::rerun-if-changed={}", folder.display());
    let of = |folder: &Path, ending: &str| {
        let mut files = sorted_entries(folder);
        files.retain(|file| file.extension().is_some_and(|found| found == ending));
        files
    };
    let name = |path: &Path| {
        path.file_stem()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let requests: String = of(&folder, "json")
        .iter()
        .map(|file| {
            format!(
                "({:?}, include_str!({file:?})),\n",
                name(file).unwrap_or_default()
            )
        })
        .collect();
    let mut answers = String::new();
    for provider in sorted_entries(&folder.join("answers")) {
        for file in of(&provider, "http") {
            let (provider, name) = (
                name(&provider).unwrap_or_default(),
                name(&file).unwrap_or_default(),
            );
            answers += &format!("({provider:?}, {name:?}, include_bytes!({file:?})),\n");
        }
    }
    write(&out.join("requests.rs"), &format!("&[\n{requests}]"));
    write(&out.join("responses.rs"), &format!("&[\n{answers}]"));
}

fn find_plugins(plugins: &Path, kind: &Kind) -> Vec<Plugin> {
    sorted_entries(&plugins.join(kind.folder()))
        .into_iter()
        .filter(|path| path.join("plugin.toml").exists())
        .map(|path| {
            let text = fs::read_to_string(path.join("plugin.toml")).expect("it exists");
            let manifest: Manifest = toml::from_str(&text)
                .unwrap_or_else(|error| panic!("{}/plugin.toml: {error}", path.display()));
            let of: &Kind = &manifest.kind;
            assert!(
                of == kind,
                "{}/plugin.toml: a plugin of this kind belongs into plugins/{}",
                path.display(),
                of.folder()
            );
            let cargo = fs::read_to_string(path.join("Cargo.toml")).expect("a plugin is a crate");
            let cargo: toml::Table = toml::from_str(&cargo).expect("cargo has read it already");
            let package = cargo["package"]["name"]
                .as_str()
                .expect("packages have names");
            Plugin {
                package: package.to_owned(),
                manifest,
            }
        })
        .collect()
}

/// Builds core modules, by the flags in `.cargo/config.toml`, and returns their folder.
fn build_plugins<'a>(root: &Path, plugins: impl Iterator<Item = &'a Plugin>) -> PathBuf {
    let target_dir = root.join("target/plugins");
    let mut cargo = cargo(root);
    cargo
        .args([
            "build",
            "--locked",
            "--profile",
            "plugin",
            "--target",
            TARGET,
            "--lib",
        ])
        .arg("--target-dir")
        .arg(&target_dir);
    for plugin in plugins {
        cargo.args(["--package", &plugin.package]);
    }
    let status = cargo.status().expect("cargo runs");
    assert!(
        status.success(),
        "building the bundled plugins failed; if the target is missing, run: rustup target add {TARGET}"
    );
    target_dir.join(TARGET).join("plugin")
}

/// A cargo of its own. Variables that the outer cargo sets for its own target would break a build, or repeat it without need.
fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets it"));
    cargo.current_dir(root);
    for variable in [
        "RUSTC_WORKSPACE_WRAPPER",
        "CLIPPY_ARGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "RUSTFLAGS",
    ] {
        cargo.env_remove(variable);
    }
    cargo
}

fn sorted_entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    paths.sort();
    paths
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
