//! `weir version`: the version, the commit and the bill of materials of this program.

use anyhow::anyhow;
use miniz_oxide::inflate::decompress_to_vec;

use crate::cli::bundle::bundle;

#[derive(clap::Args)]
pub(super) struct VersionArguments {
    /// Print the crates in this program and in its built-in plugins, as CycloneDX 1.6 in JSON.
    #[arg(long)]
    sbom: bool,
}

pub(super) fn run(arguments: &VersionArguments) -> anyhow::Result<()> {
    let bundle = bundle();
    if arguments.sbom {
        let sbom = decompress_to_vec(bundle.sbom);
        let sbom = sbom.map_err(|error| anyhow!("reading the bill of materials: {error}"))?;
        print!("{}", String::from_utf8(sbom)?);
        return Ok(());
    }
    let version = env!("CARGO_PKG_VERSION");
    println!("weir {version} (commit {})", bundle.commit);
    Ok(())
}
