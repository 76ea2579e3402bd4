//! `weir plugin build`: from a project of `weir plugin new` to its component, with each language's own commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use figment::Figment;
use figment::providers::{Format, Toml};
use serde::Deserialize;

use weir_plugins::Kind;

/// What Rust's components are compiled for.
const TARGET: &str = "wasm32-wasip2";

#[derive(clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The project: a folder with plugin.toml, and Cargo.toml, package.json or requirements.txt.
    #[arg(value_name = "DIR", default_value = ".")]
    project: PathBuf,
}

/// What a project's plugin.toml says.
#[derive(Deserialize)]
struct Manifest {
    name: String,
    kind: Kind,
}

/// A project.
struct Project<'a> {
    folder: &'a Path,
    name: String,
    kind: Kind,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let project = Project::read(&arguments.project)?;
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
            "{} has no Cargo.toml, package.json or requirements.txt: how it is built, its language's tools know",
            project.folder.display()
        );
    }
    let size = std::fs::metadata(&component)
        .with_context(|| format!("looking for {}", component.display()))?
        .len();
    println!("{} has {size} bytes.", component.display());
    Ok(())
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
        let Manifest { name, kind } = Figment::from(Toml::string(&text))
            .extract()
            .with_context(wrong)?;
        ensure!(
            !name.is_empty() && !name.contains(['/', '\\', '.']),
            "{} must have a name without dots and slashes",
            file.display()
        );
        Ok(Self { folder, name, kind })
    }

    /// Where the component goes, from the project's folder.
    fn component(&self) -> String {
        format!("dist/{}.wasm", self.name)
    }

    fn world(&self) -> &'static str {
        match self.kind {
            Kind::Adapter => "provider",
            Kind::Tool => "swarm-tool",
            Kind::Filter => "request-filter",
        }
    }

    fn build_rust(&self) -> anyhow::Result<()> {
        if !has_target() {
            self.run(
                Command::new("rustup").args(["target", "add", TARGET]),
                "Rust comes with rustup: https://rustup.rs",
            )?;
        }
        // Elsewhere it would be looked for in vain.
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
        self.run(&mut cargo, "Rust comes with rustup: https://rustup.rs")?;
        let built = format!(
            "target/{TARGET}/release/{}.wasm",
            self.name.replace('-', "_")
        );
        std::fs::copy(self.folder.join(&built), self.folder.join(self.component()))
            .with_context(|| format!("copying {built}: is the package called {}?", self.name))?;
        Ok(())
    }

    fn build_javascript(&self) -> anyhow::Result<()> {
        const NODE: &str = "Node.js comes from https://nodejs.org, or with apt-get install npm";
        if !self.folder.join("node_modules").exists() {
            let mut npm = Command::new("npm");
            self.run(npm.args(["install", "--no-audit", "--no-fund"]), NODE)?;
        }
        let source = format!("{}.js", self.kind.as_str());
        let component = self.component();
        // Without it, the component asks for an asynchronous host of another version of WASI.
        let sync = "--sync";
        let mut command = Command::new("npx");
        command.args(["--no-install", "componentize-qjs", sync, "--wit", "wit"]);
        command.args(["--world", self.world(), "--js", &source, "-o", &component]);
        self.run(&mut command, NODE)
    }

    fn build_python(&self) -> anyhow::Result<()> {
        const PYTHON: &str = "Python comes with apt-get install python3 python3-venv";
        const COMMAND: &str = ".venv/bin/componentize-py";
        if !self.folder.join(COMMAND).exists() {
            eprintln!("Installing componentize-py into .venv, once.");
            let mut python = Command::new("python3");
            self.run(python.args(["-m", "venv", ".venv"]), PYTHON)?;
            let mut pip = Command::new(".venv/bin/pip");
            pip.args(["install", "--quiet", "--disable-pip-version-check"]);
            self.run(pip.args(["-r", "requirements.txt"]), PYTHON)?;
        }
        let component = self.component();
        eprintln!("Making the component, with Python in it: this takes 10 s and more.");
        let mut command = Command::new(COMMAND);
        command.args(["-d", "wit", "-w", self.world(), "componentize"]);
        command.args([self.kind.as_str(), "-o", &component]);
        // It reads the sources in place.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        self.run(&mut command, PYTHON)
    }

    /// Runs a command in the project's folder; where there is no such command, says how to come by it.
    fn run(&self, command: &mut Command, missing: &str) -> anyhow::Result<()> {
        let program = command.get_program().to_string_lossy().into_owned();
        let arguments: Vec<_> = command
            .get_args()
            .map(|one| one.to_string_lossy())
            .collect();
        let line = format!("{program} {}", arguments.join(" "));
        eprintln!("{line}");
        let status = command
            .current_dir(self.folder)
            .status()
            .with_context(|| format!("{program} cannot be run; {missing}"))?;
        ensure!(status.success(), "`{line}` failed");
        Ok(())
    }
}

/// Whether Rust can compile for components already.
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
