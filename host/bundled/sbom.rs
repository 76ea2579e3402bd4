//! The software bill of materials: the crates in the binary and in each bundled plugin, as CycloneDX 1.6.
//!
//! The dependencies come from `cargo tree`, which resolves the features of this build, and the digests from `Cargo.lock`. Crates
//! that only run during the build, such as procedural macros, are not in the binary and not in the list. The document has no
//! time and no random number, so equal builds have equal documents.
//!
//! `cargo-cyclonedx` would be a tool to install before each build, and knows nothing of the plugins in the binary.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

/// The package whose binary is `weir`.
const PROGRAM: &str = "weir-bundled";

/// Two runs of cargo that list dependencies while a third one builds the plugins.
pub(super) struct DependencyLists {
    program: DependencyList,
    plugins: DependencyList,
}

/// A run of cargo, and the file with its output: unlike a pipe, a file never makes it wait.
struct DependencyList {
    cargo: Child,
    output: PathBuf,
}

/// A package: its name and version.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
}

/// Packages with their licenses and dependencies.
#[derive(Default)]
struct Resolution {
    licenses: BTreeMap<Package, String>,
    dependencies: BTreeMap<Package, BTreeSet<Package>>,
}

/// The package of a bundled plugin, and the slot that it fills.
pub(super) type SlotOfPackage<'a> = (&'a str, &'a str);

impl DependencyLists {
    /// Starts cargo, once for each target.
    pub(super) fn start(
        cargo: impl Fn() -> Command,
        plugins: &[SlotOfPackage<'_>],
        plugin_target: &str,
        out: &Path,
    ) -> Self {
        let target = env::var("TARGET").expect("cargo sets it");
        let packages: Vec<_> = plugins.iter().map(|(package, _)| *package).collect();
        let plugins = out.join("dependencies-of-plugins");
        Self {
            program: list(cargo(), &target, &[PROGRAM], out.join("dependencies")),
            plugins: list(cargo(), plugin_target, &packages, plugins),
        }
    }

    pub(super) fn document(
        self,
        root: &Path,
        plugins: &[SlotOfPackage<'_>],
        commit: &str,
    ) -> String {
        let mut resolution = Resolution::default();
        for DependencyList { mut cargo, output } in [self.program, self.plugins] {
            let status = cargo.wait().expect("cargo runs");
            assert!(status.success(), "cargo tree failed");
            resolution.read(&fs::read_to_string(output).expect("cargo writes UTF-8"));
        }
        resolution.write(&digests(root), plugins, commit)
    }
}

/// Starts to list packages and their dependencies, each line with its depth.
fn list(mut cargo: Command, target: &str, packages: &[&str], output: PathBuf) -> DependencyList {
    let file = File::create(&output).expect("the folder can be written");
    cargo
        .args(["tree", "--locked", "--edges", "normal,no-proc-macro"])
        .args(["--prefix", "depth", "--format", "\t{p}\t{l}\t"])
        .args(["--target", target]);
    for package in packages {
        cargo.args(["--package", package]);
    }
    let cargo = cargo.stdin(Stdio::null()).stdout(file).spawn();
    let cargo = cargo.expect("cargo runs");
    DependencyList { cargo, output }
}

impl Resolution {
    /// Reads lines such as `2⇥serde v1.0.228⇥MIT OR Apache-2.0⇥`. cargo lists the dependencies of a package once.
    fn read(&mut self, lines: &str) {
        let mut path: Vec<Package> = Vec::new();
        for line in lines.lines().filter(|line| !line.is_empty()) {
            let mut cells = line.split('\t');
            let mut next = || cells.next().unwrap_or_else(|| panic!("cargo tree: {line}"));
            let (depth, package, license) = (next(), next(), next());
            let depth: usize = depth.parse().expect("a depth");
            let mut words = package.split(' ');
            let name = words.next().expect("a name").to_owned();
            let version = words.next().and_then(|version| version.strip_prefix('v'));
            let version = version.expect("a version").to_owned();
            let package = Package { name, version };
            path.truncate(depth);
            if let Some(parent) = path.last() {
                let dependencies = self.dependencies.entry(parent.clone()).or_default();
                dependencies.insert(package.clone());
            }
            // Old manifests separate alternatives with a slash.
            let license = license.replace('/', " OR ").replace("  OR  ", " OR ");
            self.licenses.insert(package.clone(), license);
            path.push(package);
        }
    }

    fn write(
        mut self,
        digests: &BTreeMap<Package, String>,
        plugins: &[SlotOfPackage<'_>],
        commit: &str,
    ) -> String {
        let find = |name: &str| {
            let mut packages = self.licenses.keys();
            let package = packages.find(|package| package.name == name).cloned();
            package.unwrap_or_else(|| panic!("cargo tree does not list {name}"))
        };
        let program = find(PROGRAM);
        let slots: BTreeMap<_, _> = plugins
            .iter()
            .map(|(package, slot)| (find(package), *slot))
            .collect();
        let embedded = self.dependencies.entry(program.clone()).or_default();
        embedded.extend(slots.keys().cloned());

        let reference = |package: &Package| match digests.contains_key(package) {
            true => purl(package),
            false => format!("{}@{}", package.name, package.version),
        };
        let components = self
            .licenses
            .iter()
            .filter(|(package, _)| **package != program)
            .map(|(package, license)| {
                let digest = digests.get(package).map(String::as_str);
                let slot = slots.get(package).copied();
                component(package, &reference(package), license, digest, slot)
            });
        let components: Vec<_> = components.collect();
        let dependencies = self.licenses.keys().map(|package| {
            let below = self.dependencies.get(package).into_iter().flatten();
            let below: Vec<_> = below.map(|below| quoted(&reference(below))).collect();
            format!(
                "{{\"ref\":{},\"dependsOn\":[{}]}}",
                quoted(&reference(package)),
                below.join(",")
            )
        });
        let dependencies: Vec<_> = dependencies.collect();
        let target = env::var("TARGET").expect("cargo sets it");
        format!(
            "{{\n\"$schema\":\"http://cyclonedx.org/schema/bom-1.6.schema.json\",\n\"bomFormat\":\"CycloneDX\",\n\
             \"specVersion\":\"1.6\",\n\"version\":1,\n\"metadata\":{{\"lifecycles\":[{{\"phase\":\"build\"}}],\"component\":\
             {{\"type\":\"application\",\"bom-ref\":{reference},\"name\":\"weir\",\"version\":{version},\
             \"licenses\":[{{\"expression\":{license}}}],\"properties\":[{{\"name\":\"weir:commit\",\"value\":{commit}}},\
             {{\"name\":\"weir:target\",\"value\":{target}}}]}}}},\n\
             \"components\":[\n{components}\n],\n\"dependencies\":[\n{dependencies}\n]\n}}\n",
            reference = quoted(&reference(&program)),
            version = quoted(&program.version),
            license = quoted(&self.licenses[&program]),
            commit = quoted(commit),
            target = quoted(&target),
            components = components.join(",\n"),
            dependencies = dependencies.join(",\n"),
        )
    }
}

fn component(
    package: &Package,
    reference: &str,
    license: &str,
    digest: Option<&str>,
    slot: Option<&str>,
) -> String {
    let kind = match slot {
        Some(_) => "application",
        None => "library",
    };
    let mut text = format!(
        "{{\"type\":\"{kind}\",\"bom-ref\":{},\"name\":{},\"version\":{}",
        quoted(reference),
        quoted(&package.name),
        quoted(&package.version)
    );
    if let Some(digest) = digest {
        let digest = quoted(digest);
        let _ = write!(
            text,
            ",\"hashes\":[{{\"alg\":\"SHA-256\",\"content\":{digest}}}]"
        );
    }
    // A crate may have a file with its license instead.
    if !license.is_empty() {
        let license = quoted(license);
        let _ = write!(text, ",\"licenses\":[{{\"expression\":{license}}}]");
    }
    if digest.is_some() {
        let _ = write!(text, ",\"purl\":{}", quoted(reference));
    }
    if let Some(slot) = slot {
        let slot = quoted(slot);
        let _ = write!(
            text,
            ",\"properties\":[{{\"name\":\"weir:slot\",\"value\":{slot}}}]"
        );
    }
    text.push('}');
    text
}

/// Returns the digest of each crate from a registry.
fn digests(root: &Path) -> BTreeMap<Package, String> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).expect("the workspace has a lock file");
    let lock: toml::Table = toml::from_str(&lock).expect("cargo has read it already");
    let packages = lock["package"].as_array().expect("a list of packages");
    let text = |package: &toml::Value, key: &str| {
        let value = package.get(key).and_then(toml::Value::as_str);
        value.map(str::to_owned)
    };
    let digests = packages.iter().filter_map(|package| {
        let name = text(package, "name")?;
        let version = text(package, "version")?;
        Some((Package { name, version }, text(package, "checksum")?))
    });
    digests.collect()
}

/// The package URL of a crate from a registry.
fn purl(package: &Package) -> String {
    let version = package.version.replace('+', "%2B");
    format!("pkg:cargo/{}@{version}", package.name)
}

/// A JSON string. Names, versions and licenses have no characters that JSON escapes.
fn quoted(text: &str) -> String {
    let is_plain = |letter: char| !letter.is_control() && letter != '"' && letter != '\\';
    assert!(
        text.chars().all(is_plain),
        "{text:?} in the bill of materials"
    );
    format!("\"{text}\"")
}
