//! `weir plugin new` and `weir plugin wit`: a project from the samples in `plugins/samples`, and the contract as one file.
//!
//! The samples are plugins for the service of an imaginary company. A project has its own name in place of the company's, the
//! contract as one file and, in Rust, the sources of the SDK: it builds without this repository.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use weir_plugins::PluginKind;
use weir_plugins::bundled::Bundle;
use weir_sandbox::adapter::kinds::CONTRACT as KIND_CONTRACT;

/// The versions of the SDK's dependencies that this repository builds with.
const CARGO_LOCK: &str = include_str!("../../../Cargo.lock");

/// The files of the contract before and after those of [`KIND_CONTRACT`]; each file refers to earlier files only.
const CONTRACT_BEFORE: [&str; 2] = [
    include_str!("../../../wit/chat.wit"),
    include_str!("../../../wit/adapter.wit"),
];
const CONTRACT_AFTER: [&str; 5] = [
    include_str!("../../../wit/tool.wit"),
    include_str!("../../../wit/filter.wit"),
    include_str!("../../../wit/filter-steps.wit"),
    include_str!("../../../wit/filter-walk.wit"),
    include_str!("../../../wit/worlds.wit"),
];

/// The name that the samples have.
const NAME: &str = "acme";

/// Bytes of the longest name that a description may have.
const NAME_BYTES: usize = 64;

/// The language of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Rust.
    Rust,
    /// JavaScript.
    JavaScript,
    /// Python.
    Python,
}

impl Language {
    /// Returns the folder of the samples.
    fn folder(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::JavaScript => "javascript",
            Self::Python => "python",
        }
    }
}

/// A project that does not exist yet.
#[derive(Debug)]
pub struct NewProject {
    /// The name of the plugin.
    pub name: String,
    /// The kind of plugin.
    pub kind: PluginKind,
    /// The language.
    pub language: Language,
    /// The folder.
    pub folder: PathBuf,
}

impl NewProject {
    /// Writes the project's files.
    ///
    /// # Errors
    ///
    /// A name with other characters than allowed, a folder that exists, or a file that cannot be written.
    pub fn create(&self, bundle: &Bundle) -> anyhow::Result<()> {
        check_name(&self.name)?;
        let folder = &self.folder;
        ensure!(
            !folder.exists(),
            "{} exists: use another name, or another folder with --folder",
            folder.display()
        );
        let own = format!("{}/{}/", self.language.folder(), self.kind.as_str());
        for (path, text) in bundle.samples {
            let path = path
                .strip_prefix(&own)
                .or_else(|| path.strip_prefix("common/"));
            if let Some(path) = path {
                write(&folder.join(path), &named(text, &self.name))?;
            }
        }
        write(&folder.join("wit/weir.wit"), &contract())?;
        if self.language == Language::Rust {
            for (path, text) in bundle.sdk {
                write(&folder.join("vendor/weir-sdk").join(path), text)?;
            }
            write(&folder.join("Cargo.lock"), CARGO_LOCK)?;
        }
        Ok(())
    }
}

/// Returns the contract as one file, with one package line.
pub fn contract() -> String {
    let mut whole = String::new();
    let kinds = KIND_CONTRACT.iter().copied();
    for text in CONTRACT_BEFORE
        .into_iter()
        .chain(kinds)
        .chain(CONTRACT_AFTER)
    {
        match text.split_once('\n') {
            Some((package, rest)) if package.starts_with("package ") && !whole.is_empty() => {
                whole.push_str(rest);
            }
            _ => whole.push_str(text),
        }
    }
    whole
}

/// Replaces the name in a sample. A Rust path has _ in place of -.
fn named(text: &str, name: &str) -> String {
    let crate_name = name.replace('-', "_");
    text.replace(&format!("{NAME}::"), &format!("{crate_name}::"))
        .replace(NAME, name)
        .replace("Acme", name)
}

fn check_name(name: &str) -> anyhow::Result<()> {
    let is_sound = name.len() <= NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|one| {
            one.is_ascii_lowercase() || one.is_ascii_digit() || matches!(one, '-' | '_')
        });
    if !is_sound {
        bail!(
            "{name:?} is not a valid name: use lower-case letters, digits, - and _, with a letter first, and at most \
             {NAME_BYTES} characters"
        );
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().context("a file lies in a folder")?;
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, text))
        .with_context(|| format!("writing {}", path.display()))
}
