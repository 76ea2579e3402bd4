//! `weir plugin build`.

use std::path::PathBuf;

#[derive(clap::Args)]
pub(in crate::cli) struct BuildPluginArguments {
    /// The project: a folder with plugin.toml, and Cargo.toml, package.json or requirements.txt.
    #[arg(value_name = "DIR", default_value = ".")]
    project: PathBuf,
}

pub(super) fn run(arguments: &BuildPluginArguments) -> anyhow::Result<()> {
    let built = weir_author::build::build(&arguments.project)?;
    println!("{} has {} bytes.", built.file.display(), built.bytes);
    Ok(())
}
