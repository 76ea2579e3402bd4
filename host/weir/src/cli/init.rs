//! `weir init`: a configuration to begin with.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};

/// What there is to set while one tries weir out, all of it as a comment.
const DEVELOPMENT: &str = include_str!("init/weir.toml");

/// What others are served with.
const PRODUCTION: &str = include_str!("../../../deploy/weir.toml");

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The file, which must not be there yet.
    #[arg(default_value = "weir.toml")]
    file: PathBuf,
    /// Write one for serving others: secrets in files, PostgreSQL and Redis.
    #[arg(long)]
    production: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { file, production } = arguments;
    let shown = file.display();
    let mut options = OpenOptions::new();
    let mut opened = match options.write(true).create_new(true).open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{shown} is there already, and stays as it is");
        }
        Err(error) => return Err(error).with_context(|| format!("creating {shown}")),
    };
    let text = if *production { PRODUCTION } else { DEVELOPMENT };
    opened
        .write_all(text.as_bytes())
        .with_context(|| format!("writing {shown}"))?;
    if *production {
        println!("{shown} is written. Put the secrets that it names into their files, then:");
        println!(
            "\n  weir --config {shown} check --production --probe\n  weir --config {shown} serve"
        );
    } else {
        println!(
            "{shown} is written: every line of it is a comment, and says what holds without it. Begin with:"
        );
        println!("\n  weir --config {shown} serve");
    }
    Ok(())
}
