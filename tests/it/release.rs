//! The files for operators: the Helm chart, the bill of materials in the program, and the signed files of a release.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tests::source::root;
use tests::weir_program;

use crate::cli::{run, text};

/// Runs a script of `tests/deploy`, which fails if something is wrong.
pub(crate) fn check(script: &str, arguments: &[&OsStr]) {
    let python = root().join("target/deploy/bin/python");
    assert!(
        python.exists(),
        "{} is missing; run tests/run",
        python.display()
    );
    let mut command = Command::new(python);
    command.arg(root().join("tests/deploy").join(script));
    let output = command.args(arguments).output().expect("it runs");
    let said = text(&output.stdout);
    assert!(
        output.status.success() && said.contains("all as expected"),
        "{said}{}",
        text(&output.stderr)
    );
}

#[test]
fn the_chart_renders_the_objects_of_the_kustomization() {
    check("chart.py", &[root().join("host/deploy").as_os_str()]);
}

/// Returns the program's bill of materials.
fn sbom(folder: &Path) -> (String, Value) {
    let printed = run(folder, &["version", "--sbom"]);
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    let printed = text(&printed.stdout);
    let value = serde_json::from_str(&printed).expect("JSON");
    (printed, value)
}

#[test]
fn the_program_has_its_bill_of_materials() {
    let folder = tempfile::tempdir().expect("a folder");
    let version = text(&run(folder.path(), &["version"]).stdout);
    assert!(
        version.starts_with(concat!("weir ", env!("CARGO_PKG_VERSION"), " (commit ")),
        "{version}"
    );
    let (printed, sbom) = sbom(folder.path());
    let file = folder.path().join("weir.cdx.json");
    fs::write(&file, printed).expect("a file");
    check("release.py", &[file.as_os_str()]);

    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("the lock file");
    let lock: toml::Table = toml::from_str(&lock).expect("TOML");
    let packages = lock["package"].as_array().expect("a list");
    let digests: BTreeMap<_, _> = packages
        .iter()
        .map(|package| {
            let value = |key: &str| package.get(key).and_then(toml::Value::as_str);
            let name = (value("name").expect("a name"), value("version"));
            (name, value("checksum"))
        })
        .collect();
    let components = sbom["components"].as_array().expect("a list");
    let mut names = BTreeSet::new();
    for component in components {
        let (name, version) = (component["name"].as_str(), component["version"].as_str());
        let name = name.expect("a name");
        names.insert(name);
        let digest = digests.get(&(name, version));
        let digest = digest.unwrap_or_else(|| panic!("{component} is not in Cargo.lock"));
        assert_eq!(component["hashes"][0]["content"].as_str(), *digest);
        assert!(
            component["licenses"][0]["expression"].is_string(),
            "{component}"
        );
    }
    for in_program in [
        "tokio",
        "wasmtime",
        "weir-ledger",
        "weir-adapter-openai",
        "weir-sdk",
        "regex-lite",
    ] {
        assert!(names.contains(in_program), "{in_program}");
    }
    // A procedural macro, a dependency of tests, the tests, and a dependency on another system.
    for not_in_program in ["serde_derive", "proptest", "tests", "windows-sys"] {
        assert!(!names.contains(not_in_program), "{not_in_program}");
    }
    let slot = |component: &&Value| component["properties"][0]["value"] == "openai";
    let openai = components.iter().find(slot).expect("a plugin");
    assert_eq!(openai["name"], "weir-adapter-openai");
    let dependencies = sbom["dependencies"].as_array().expect("a list");
    let of = |name: &Value| {
        let found = dependencies.iter().find(|entry| entry["ref"] == *name);
        found.expect("an entry")["dependsOn"]
            .as_array()
            .expect("a list")
    };
    let program = of(&sbom["metadata"]["component"]["bom-ref"]);
    assert!(program.contains(&openai["bom-ref"]), "{program:?}");
    let sdk = |name: &Value| {
        name.as_str()
            .is_some_and(|name| name.starts_with("weir-sdk@"))
    };
    assert!(of(&openai["bom-ref"]).iter().any(sdk));
}

/// The version of the program, which the build and the tag of the image have.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const IMAGE: &str = "registry.your-company.com:5000/weir";

/// The digest of the image that the stand-in of docker pushes.
const DIGEST: &str = "19ffeab6f8bc9293ac2c3fdf94ebe28396254c993aea0b5a542cfb02e0883fa3";

/// A stand-in of the script that builds the program. The built program tells the commit as a real one does, and prints the bill of materials of the
/// program under test.
const BUILD: &str = r#"#!/bin/sh
echo "optimized-build $*" >> "$CALLS"
mkdir -p target/optimized
cat > target/optimized/weir <<END
#!/bin/sh
[ "\$*" = version ] && exec echo "weir $VERSION (commit ${TOLD_COMMIT:-$WEIR_COMMIT})"
exec "$PROGRAM" "\$@"
END
chmod +x target/optimized/weir
"#;

/// A stand-in of docker, which runs the same program. The metadata have the form of "docker buildx build" in the
/// documentation of Docker 28.
const DOCKER: &str = r#"#!/bin/sh
echo "docker $*" >> "$CALLS"
if [ "$1" = run ]; then
    shift 3
    exec target/optimized/weir "$@"
fi
while [ "$1" != --metadata-file ]; do shift; done
cat > "$2" <<END
{
  "buildx.build.ref": "mybuilder/mybuilder0/0fjb6ubs52xx3vygf6fgdl611",
  "containerimage.config.digest": "sha256:2937f66a9722f7f4a2df583de2f8cb97fc9196059a410e7f00072fc918930e66",
  "containerimage.descriptor": {
    "digest": "sha256:$DIGEST",
    "mediaType": "application/vnd.oci.image.index.v1+json",
    "size": 856
  },
  "containerimage.digest": "sha256:$DIGEST"
}
END
"#;

fn write_script(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// Runs a command that must succeed, and returns its output.
fn done(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// A repository with the release script, stand-ins of the build and of docker, and a key.
struct Repository {
    folder: tempfile::TempDir,
    commit: String,
}

impl Repository {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        for below in ["source/host/deploy", "bin"] {
            fs::create_dir_all(path.join(below)).expect("a folder");
        }
        let script = root().join("host/deploy/release");
        fs::copy(script, path.join("source/host/deploy/release")).expect("a copy");
        fs::write(path.join("source/Cargo.lock"), "version = 4\n").expect("a file");
        fs::write(path.join("source/.gitignore"), "/target\n").expect("a file");
        write_script(&path.join("source/host/deploy/optimized-build"), BUILD);
        write_script(&path.join("bin/docker"), DOCKER);
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=a", "-c", "user.email=a@b", "-C"]);
            done(git.arg(path.join("source")).args(arguments))
        };
        git(&["init", "--quiet"]);
        git(&[
            "remote",
            "add",
            "origin",
            "https://ci:canary@git.example/weir.git",
        ]);
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", "One"]);
        let commit = git(&["rev-parse", "HEAD"]).trim().to_owned();
        let openssl = |arguments: &[&str]| {
            done(Command::new("openssl").args(arguments).current_dir(path));
        };
        openssl(&[
            "ecparam",
            "-name",
            "prime256v1",
            "-genkey",
            "-noout",
            "-out",
            "key",
        ]);
        openssl(&["ec", "-in", "key", "-pubout", "-out", "public"]);
        Self { folder, commit }
    }

    fn release(&self, arguments: &[&str], told_commit: &str) -> Output {
        let path = self.folder.path();
        let search = std::env::var("PATH").expect("a path");
        let mut command = Command::new(path.join("source/host/deploy/release"));
        command
            .args(arguments)
            .current_dir(path)
            .env("PATH", format!("{}:{search}", path.join("bin").display()))
            .env("CALLS", path.join("calls"))
            .env("PROGRAM", weir_program())
            .env("VERSION", VERSION)
            .env("DIGEST", DIGEST)
            .env("TOLD_COMMIT", told_commit)
            .env("RELEASE_BUILDER", "https://ci.example/runner");
        command.output().expect("it runs")
    }

    /// Runs the commands with which a user verifies a release.
    fn verifies(&self) -> bool {
        let commands = "base64 -d SHA256SUMS.sig > ../sums.sig && \
             openssl dgst -sha256 -verify ../public -signature ../sums.sig SHA256SUMS && sha256sum --check SHA256SUMS";
        let script = fs::read_to_string(root().join("host/deploy/release")).expect("the script");
        for command in [
            "openssl dgst -sha256 -verify",
            "sha256sum --check SHA256SUMS",
        ] {
            assert!(script.contains(command), "the script documents {command}");
        }
        let mut shell = Command::new("sh");
        shell.args(["-ec", commands]);
        let shell = shell.current_dir(self.folder.path().join("out")).output();
        shell.expect("sh runs").status.success()
    }
}

#[test]
fn a_release_is_signed_with_its_provenance_and_bills_of_materials() {
    let repository = Repository::new();
    let path = repository.folder.path();
    let tag = format!("{IMAGE}:{VERSION}");
    let released = repository.release(&["key", "out", &tag], "");
    let complaint = text(&released.stderr);
    assert!(released.status.success(), "{complaint}");
    let arguments = [
        path.join("out").into_os_string(),
        path.join("public").into_os_string(),
        repository.commit.clone().into(),
        IMAGE.into(),
        DIGEST.into(),
    ];
    let arguments: Vec<_> = arguments.iter().map(|argument| &**argument).collect();
    check("release.py", &arguments);
    assert!(repository.verifies());

    let calls = fs::read_to_string(path.join("calls")).expect("the calls");
    assert!(calls.contains("optimized-build"), "{calls}");
    assert!(
        calls.contains(&format!("--build-arg WEIR_COMMIT={}", repository.commit)),
        "{calls}"
    );
    assert!(calls.contains(&format!("--tag {tag} --push .")), "{calls}");
    // The program in the image is addressed by the digest that the signature names.
    assert!(
        calls.contains(&format!(
            "docker run --rm {IMAGE}@sha256:{DIGEST} version --sbom"
        )),
        "{calls}"
    );
    for file in fs::read_dir(path.join("out")).expect("a folder") {
        let file = fs::read(file.expect("a file").path()).expect("a file");
        assert!(
            !text(&file).contains("canary"),
            "the password of the remote"
        );
    }

    let program = path.join("out/weir");
    let changed = fs::read_to_string(&program).expect("a script") + "#";
    fs::write(&program, changed).expect("a file");
    assert!(!repository.verifies());
}

#[test]
fn a_release_is_of_its_commit_alone() {
    let repository = Repository::new();
    let path = repository.folder.path();
    let stale = repository.release(&["key", "out"], "0123456789abcdef0123456789abcdef01234567");
    let complaint = text(&stale.stderr);
    assert!(!stale.status.success(), "{complaint}");
    assert!(complaint.contains("is not from commit"), "{complaint}");

    fs::write(path.join("source/Cargo.lock"), "version = 3\n").expect("a file");
    let changed = repository.release(&["key", "out"], "");
    let complaint = text(&changed.stderr);
    assert!(!changed.status.success(), "{complaint}");
    assert!(
        complaint.contains("has changes that are not in commit"),
        "{complaint}"
    );
    assert!(!path.join("out/SHA256SUMS").exists());
}
