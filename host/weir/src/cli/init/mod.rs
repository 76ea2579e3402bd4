//! `weir init`: writes a first configuration.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};

use super::output::program;

/// The development configuration: every setting that a first trial may need, as a comment.
const DEVELOPMENT: &str = include_str!("weir.toml");

/// The production configuration.
const PRODUCTION: &str = include_str!("../../../../deploy/weir.toml");

#[derive(clap::Args)]
pub(super) struct InitArguments {
    /// The file to write; it must not exist yet.
    #[arg(default_value = "weir.toml")]
    file: PathBuf,
    /// Write a production configuration: secrets in files, PostgreSQL and Redis.
    #[arg(long)]
    production: bool,
}

pub(super) fn run(arguments: &InitArguments) -> anyhow::Result<()> {
    let InitArguments { file, production } = arguments;
    let (shown, weir) = (file.display(), program());
    let mut options = OpenOptions::new();
    let mut opened = match options.write(true).create_new(true).open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{shown} already exists; weir does not overwrite it");
        }
        Err(error) => return Err(error).with_context(|| format!("creating {shown}")),
    };
    let text = if *production { PRODUCTION } else { DEVELOPMENT };
    opened
        .write_all(text.as_bytes())
        .with_context(|| format!("writing {shown}"))?;
    if *production {
        println!("Wrote {shown}. Put the secrets that it names into their files, then run:");
        println!(
            "\n  {weir} --config {shown} check --production --probe\n  {weir} --config {shown} serve"
        );
    } else {
        println!("Wrote {shown}: every line is a comment that shows the default. Start with:");
        println!("\n  {weir} --config {shown} serve");
    }
    Ok(())
}
