//! `weir plugin new`: a project that builds, with tests, made of the samples in `plugins/samples`; and `weir plugin wit`.
//!
//! The samples are a plugin for a made-up company's service. A project has its own name in place of that company's, the
//! contract as one file and, in Rust, the SDK's sources: it needs nothing of this repository.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use weir_plugins::Kind;

use crate::cli::bundle;

/// The versions that the SDK is built with here.
const CARGO_LOCK: &str = include_str!("../../../../../Cargo.lock");

/// The contract's files, in the order in which they refer to one another.
const CONTRACT: [&str; 5] = [
    include_str!("../../../../../wit/chat.wit"),
    include_str!("../../../../../wit/adapter.wit"),
    include_str!("../../../../../wit/tool.wit"),
    include_str!("../../../../../wit/filter.wit"),
    include_str!("../../../../../wit/worlds.wit"),
];

/// The samples' name.
const NAME: &str = "acme";

/// Bytes of the longest name, as a description may have it.
const NAME_BYTES: usize = 64;

#[derive(clap::Args)]
pub(in crate::cli) struct Arguments {
    /// What it is called: lower-case letters, digits, - and _; a letter first.
    #[arg(value_name = "NAME")]
    name: String,
    /// What it is.
    #[arg(long, value_enum, default_value_t = What::Adapter)]
    kind: What,
    /// In which language.
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    lang: Language,
    /// The folder that is made; ./NAME unless told.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    Adapter,
    Tool,
    Filter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    Rust,
    Js,
    Python,
}

impl Language {
    /// The samples' folder.
    fn folder(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Js => "javascript",
            Self::Python => "python",
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments {
        name, kind, lang, ..
    } = arguments;
    check_name(name)?;
    let folder = arguments.folder.clone().unwrap_or_else(|| name.into());
    ensure!(
        !folder.exists(),
        "{} is there already: give another name, or another folder with --folder",
        folder.display()
    );
    let kind = match kind {
        What::Adapter => Kind::Adapter,
        What::Tool => Kind::Tool,
        What::Filter => Kind::Filter,
    };
    let own = format!("{}/{}/", lang.folder(), kind.as_str());
    for (path, text) in bundle().samples {
        let path = path
            .strip_prefix(&own)
            .or_else(|| path.strip_prefix("common/"));
        if let Some(path) = path {
            write(&folder.join(path), &named(text, name))?;
        }
    }
    write(&folder.join("wit/weir.wit"), &contract())?;
    if *lang == Language::Rust {
        for (path, text) in bundle().sdk {
            write(&folder.join("vendor/weir-sdk").join(path), text)?;
        }
        write(&folder.join("Cargo.lock"), CARGO_LOCK)?;
    }
    let shown = folder.display();
    println!("{shown} is made. Next:\n");
    println!("  cd {shown}");
    println!("  weir plugin build");
    println!("  weir plugin check dist/{name}.wasm --recordings recordings");
    Ok(())
}

/// `weir plugin wit`.
pub(super) fn print_contract() {
    print!("{}", contract());
}

/// The contract as one file: the package's name stands once.
fn contract() -> String {
    let mut whole = String::new();
    for text in CONTRACT {
        match text.split_once('\n') {
            Some((package, rest)) if package.starts_with("package ") && !whole.is_empty() => {
                whole.push_str(rest);
            }
            _ => whole.push_str(text),
        }
    }
    whole
}

/// A sample's text with another name, which as a path of Rust's has no -.
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
            "{name:?} is no name: it has lower-case letters, digits, - and _, begins with a letter, and ends within \
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
