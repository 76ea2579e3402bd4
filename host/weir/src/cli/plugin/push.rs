//! `weir plugin push`.

use std::path::PathBuf;

use weir_app::config::Config;
use weir_author::input::slot_name;
use weir_author::registry::{ArtifactReference, PushRequest};

use super::input::loader;

#[derive(clap::Args)]
pub(in crate::cli) struct Push {
    /// The component: a .wasm file.
    #[arg(value_name = "FILE")]
    component: PathBuf,
    /// The target. If the tag exists, it moves to the new artifact.
    #[arg(value_name = "oci://REGISTRY/NAME:TAG", value_parser = ArtifactReference::parse_target)]
    to: ArtifactReference,
    /// The file with the component's signature. Default: FILE.sig, if it exists.
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    signature: Option<PathBuf>,
    /// Sign the component now, with the private key in this file, like `weir plugin sign`.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The slot of the new signature. Default: the component's name.
    #[arg(long, value_parser = slot_name, requires = "key")]
    slot: Option<String>,
    /// Connect to the registry without TLS. A registry on this machine never has TLS.
    #[arg(long)]
    plain_http: bool,
}

pub(super) async fn push(config: &Config, push: Push) -> anyhow::Result<()> {
    let request = PushRequest {
        component: &push.component,
        to: &push.to,
        signature: push.signature.as_deref(),
        key: push.key.as_deref(),
        slot: push.slot,
        plain_http: push.plain_http,
    };
    let pushed = request.push(&loader(config)?).await?;
    println!("{}", pushed.reference);
    match pushed.signature {
        Some(signature) => eprintln!(
            "The artifact has a signature for the slot {}.",
            signature.slot
        ),
        None => {
            eprintln!("The artifact has no signature: only gateways in development mode accept it.")
        }
    }
    Ok(())
}
