//! `weir plugin build`: compiles a project of `weir plugin new` to its component, with the tools of its language.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use weir_plugins::PluginKind;

use crate::notes::note;

/// The target of Rust plugins.
const TARGET: &str = "wasm32-wasip2";

/// The compiler's flags for plugins. SIMD searches bytes. The heap has 1 MiB, because growth costs system calls in each request.
/// weir makes a component without WASI of the core module.
const FLAGS: [&str; 4] = [
    "-Ctarget-feature=+simd128",
    "-Clink-arg=-zstack-size=524288",
    "-Clink-arg=--initial-memory=1572864",
    "-Clink-arg=--skip-wit-component",
];

/// A component that a project was compiled to.
#[derive(Debug)]
pub struct BuiltComponent {
    /// The component's file.
    pub file: PathBuf,
    /// The size in bytes.
    pub bytes: u64,
}

/// The file `plugin.toml` of a project.
#[derive(Deserialize)]
struct ProjectManifest {
    name: String,
    kind: PluginKind,
}

/// A project that exists.
struct Project<'a> {
    folder: &'a Path,
    name: String,
    kind: PluginKind,
}

/// Compiles a project. `folder` has plugin.toml, and Cargo.toml, package.json or requirements.txt.
///
/// # Errors
///
/// A folder without these files, a missing tool, or a tool that fails.
pub fn build(folder: &Path) -> anyhow::Result<BuiltComponent> {
    let project = Project::read(folder)?;
    let component = project.folder.join(project.component());
    std::fs::create_dir_all(project.folder.join("dist")).context("making the folder dist")?;
    let has = |file: &str| project.folder.join(file).exists();
    if has("Cargo.toml") {
        project.build_rust()?;
    } else if has("package.json") {
        project.build_javascript()?;
    } else if has("requirements.txt") {
        project.build_python()?;
    } else {
        bail!(
            "{} has no Cargo.toml, package.json or requirements.txt: build it with the tools of its language",
            project.folder.display()
        );
    }
    let metadata = std::fs::metadata(&component)
        .with_context(|| format!("looking for {}", component.display()))?;
    Ok(BuiltComponent {
        bytes: metadata.len(),
        file: component,
    })
}

impl<'a> Project<'a> {
    fn read(folder: &'a Path) -> anyhow::Result<Self> {
        let file = folder.join("plugin.toml");
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("reading {}: is this a plugin's folder?", file.display()))?;
        let wrong = || {
            format!(
                "{} must have a name, and kind = \"adapter\", kind = \"tool\" or kind = \"filter\"",
                file.display()
            )
        };
        let ProjectManifest { name, kind } = toml::from_str(&text).with_context(wrong)?;
        ensure!(
            !name.is_empty() && !name.contains(['/', '\\', '.']),
            "{} must have a name without dots and slashes",
            file.display()
        );
        Ok(Self { folder, name, kind })
    }

    /// Returns the component's path, relative to the project.
    fn component(&self) -> String {
        format!("dist/{}.wasm", self.name)
    }

    fn world(&self) -> &'static str {
        match self.kind {
            PluginKind::Adapter => "provider",
            PluginKind::Tool => "swarm-tool",
            PluginKind::Filter if self.has_walk() => "walking-filter",
            PluginKind::Filter => "request-filter",
        }
    }

    /// Tells whether the project's copy of the contract has `filter-walk`. Projects of weir's earlier releases do not.
    fn has_walk(&self) -> bool {
        let contract = std::fs::read_to_string(self.folder.join("wit/weir.wit"));
        contract.is_ok_and(|text| text.contains("world walking-filter"))
    }

    fn build_rust(&self) -> anyhow::Result<()> {
        if !has_target() {
            self.run(
                Command::new("rustup").args(["target", "add", TARGET]),
                "to install Rust, see https://rustup.rs",
            )?;
        }
        // The component is copied from this folder: CARGO_TARGET_DIR must not move it.
        let mut cargo = Command::new("cargo");
        cargo.env_remove("CARGO_TARGET_DIR").args([
            "build",
            "--release",
            "--lib",
            "--target",
            TARGET,
            "--target-dir",
            "target",
        ]);
        // A project's own flags add to these in its configuration. Flags of the environment replace all.
        let flags = FLAGS.map(|flag| format!("{flag:?}")).join(", ");
        cargo.args(["--config", &format!("target.{TARGET}.rustflags=[{flags}]")]);
        self.run(&mut cargo, "to install Rust, see https://rustup.rs")?;
        let built = format!(
            "target/{TARGET}/release/{}.wasm",
            self.name.replace('-', "_")
        );
        let built_bytes = std::fs::read(self.folder.join(&built)).with_context(|| {
            format!("reading {built}: is {} the name of the package?", self.name)
        })?;
        // Other flags of the environment make a component, which stays as it is.
        let component = match weir_encoder::is_component(&built_bytes) {
            true => built_bytes,
            false => weir_encoder::encode(&built_bytes)
                .with_context(|| format!("making a component of {built}"))?,
        };
        let file = self.component();
        std::fs::write(self.folder.join(&file), component)
            .with_context(|| format!("writing {file}"))
    }

    fn build_javascript(&self) -> anyhow::Result<()> {
        const NODE: &str = "to install Node.js, see https://nodejs.org, or run apt-get install npm";
        if !self.folder.join("node_modules").exists() {
            let mut npm = Command::new("npm");
            self.run(npm.args(["install", "--no-audit", "--no-fund"]), NODE)?;
        }
        let source = format!("{}.js", self.kind.as_str());
        let component = self.component();
        // A component without --sync needs an asynchronous host with another version of WASI.
        let sync = "--sync";
        let mut command = Command::new("npx");
        command.args(["--no-install", "componentize-qjs", sync, "--wit", "wit"]);
        command.args(["--world", self.world(), "--js", &source, "-o", &component]);
        self.run(&mut command, NODE)
    }

    fn build_python(&self) -> anyhow::Result<()> {
        const PYTHON: &str = "to install Python, run apt-get install python3 python3-venv";
        const COMMAND: &str = ".venv/bin/componentize-py";
        if !self.folder.join(COMMAND).exists() {
            note(format_args!("Installing componentize-py into .venv."));
            let mut python = Command::new("python3");
            self.run(python.args(["-m", "venv", ".venv"]), PYTHON)?;
            let mut pip = Command::new(".venv/bin/pip");
            pip.args(["install", "--quiet", "--disable-pip-version-check"]);
            self.run(pip.args(["-r", "requirements.txt"]), PYTHON)?;
        }
        let component = self.component();
        note(format_args!(
            "Making the component with Python in it. This takes at least 10 s."
        ));
        let mut command = Command::new(COMMAND);
        command.args(["-d", "wit", "-w", self.world(), "componentize"]);
        command.args([self.kind.as_str(), "-o", &component]);
        // componentize-py reads the sources in place: no cache files may appear beside them.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        self.run(&mut command, PYTHON)
    }

    /// Runs a command in the project's folder. If the command is missing, the error says how to install it.
    fn run(&self, command: &mut Command, missing: &str) -> anyhow::Result<()> {
        let program = command.get_program().to_string_lossy().into_owned();
        let arguments: Vec<_> = command
            .get_args()
            .map(|one| one.to_string_lossy())
            .collect();
        let line = format!("{program} {}", arguments.join(" "));
        note(format_args!("{line}"));
        let status = command
            .current_dir(self.folder)
            .status()
            .with_context(|| format!("{program} cannot be run; {missing}"))?;
        ensure!(status.success(), "`{line}` failed");
        Ok(())
    }
}

/// Tells whether the target of components is installed.
fn has_target() -> bool {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    sysroot.is_ok_and(|output| {
        let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Path::new(&sysroot)
            .join("lib/rustlib")
            .join(TARGET)
            .exists()
    })
}
