//! `weir plugin keygen`, `sign` and `verify`.

use std::path::PathBuf;

use weir_app::config::Config;
use weir_author::input::slot_name;
use weir_author::signing::{self, AcceptedSigner};
use weir_plugins::signature::PublisherKey;

use super::input::loader;

#[derive(clap::Args)]
pub(in crate::cli) struct Keygen {
    /// The file for the private key. Only its owner can read it. An existing file is an error.
    #[arg(value_name = "FILE")]
    key: PathBuf,
}

#[derive(clap::Args)]
pub(in crate::cli) struct Sign {
    /// The component: a .wasm file.
    #[arg(value_name = "FILE")]
    component: PathBuf,
    /// The file with the publisher's private key.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The slot that the component may fill. Default: the component's name.
    #[arg(long, value_parser = slot_name)]
    slot: Option<String>,
}

#[derive(clap::Args)]
pub(in crate::cli) struct Verify {
    /// The component: a .wasm file.
    #[arg(value_name = "FILE")]
    component: PathBuf,
    /// The file with the signature. Default: FILE.sig.
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    /// The slot that the signature must be for. Default: any.
    #[arg(long, value_parser = slot_name)]
    slot: Option<String>,
    /// The public key that the signature must be from. Default: any publisher of the configuration.
    #[arg(long, value_name = "KEY", value_parser = PublisherKey::parse)]
    key: Option<PublisherKey>,
}

pub(super) fn keygen(Keygen { key: path }: &Keygen) -> anyhow::Result<()> {
    let key = signing::generate_key(path)?;
    println!("{key}");
    eprintln!(
        "The private key is in {}: keep it secret. To make a gateway trust the key, add to its configuration:\n\n  \
         [plugins.publishers.NAME]\n  keys = [\"{key}\"]\n  slots = [\"SLOT\"]",
        path.display(),
    );
    Ok(())
}

pub(super) async fn sign(config: &Config, sign: Sign) -> anyhow::Result<()> {
    let loader = loader(config)?;
    let signed = signing::sign(&loader, &sign.component, &sign.key, sign.slot).await?;
    println!("{}", signed.path.display());
    eprintln!("Signed: {}", signing::describe(&signed.signature));
    Ok(())
}

pub(super) fn verify(config: &Config, verify: &Verify) -> anyhow::Result<()> {
    let accepted = match verify.key {
        Some(key) => AcceptedSigner::Key(key),
        None => AcceptedSigner::Publishers(config.trust()),
    };
    let verified = signing::verify(
        &verify.component,
        verify.signature.as_deref(),
        &accepted,
        verify.slot.as_deref(),
    )?;
    println!(
        "Good signature of {}: {}",
        verified.signer,
        signing::describe(&verified.signature)
    );
    Ok(())
}
