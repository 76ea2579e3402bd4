//! `weir plugin push`: a component goes to a registry.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::{Context, ensure};
use bytes::Bytes;
use weir_sandbox::Digest;

use super::artifact::Pushable;
use super::client::RegistryClient;
use super::reference::Reference;
use crate::cli::plugin::given::{read_component, slot_name};
use crate::cli::plugin::signing;
use crate::cli::plugin::upload::{Words, watched};
use crate::config::Config;

#[derive(clap::Args)]
pub(in crate::cli) struct Push {
    /// The component: a .wasm file.
    #[arg(value_name = "FILE")]
    component: PathBuf,
    /// Where it goes. What the tag named before, it names no more.
    #[arg(value_name = "oci://REGISTRY/NAME:TAG", value_parser = Reference::parse_target)]
    to: Reference,
    /// The component's signature, which goes along. Default: FILE.sig, if it is there.
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    signature: Option<PathBuf>,
    /// Sign it now, with the publisher's private key in this file, as `weir plugin sign` does.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The slot that it is signed for. Default: what the component calls itself.
    #[arg(long, value_parser = slot_name, requires = "key")]
    slot: Option<String>,
    /// Speak to the registry without TLS, as to one on this machine.
    #[arg(long)]
    plain_http: bool,
}

pub(in crate::cli::plugin) async fn push(config: &Config, push: Push) -> anyhow::Result<()> {
    let component = read_component(&push.component)?;
    let digest = Digest::of(&component);
    let plugin = signing::described_by_itself(config, &push.component).await?;
    let signature = match &push.key {
        Some(key) => Some(signing::sign_as_itself(
            &plugin,
            key,
            push.slot,
            &push.component,
        )?),
        None => signing::beside(&push.component, push.signature.as_deref())?,
    };
    if let Some(signature) = &signature {
        ensure!(
            signature.digest == digest && signature.is_genuine(),
            "the signature is not for {}, and would be refused: sign it anew, or name another with --signature",
            push.component.display()
        );
        push.to.check_version(&signature.version)?;
    }
    let described = Pushable::of(
        &component,
        plugin.name(),
        plugin.version(),
        signature.as_ref(),
    )?;
    let pushed = send(&push.to, push.plain_http, component.into(), described).await;
    println!("{}", pushed.with_context(|| push.to.to_string())?);
    match signature {
        Some(signature) => eprintln!("It carries a signature for the slot {}.", signature.slot),
        None => eprintln!("It carries no signature: outside development mode, gateways refuse it."),
    }
    Ok(())
}

async fn send(
    to: &Reference,
    plain_http: bool,
    component: Bytes,
    Pushable { config, manifest }: Pushable,
) -> anyhow::Result<Reference> {
    let mut client = RegistryClient::new(to, "pull,push", plain_http)?;
    let (total, sent) = (component.len(), Arc::new(AtomicUsize::new(0)));
    let digest = Digest::of(&manifest);
    let words = Words {
        moving: "Pushing",
        after: "Waiting for the registry",
    };
    let put = async {
        client.put_blob(component, &sent).await?;
        client.put_blob(config.into(), &Arc::default()).await?;
        // The last, which has them be there.
        client.put_manifest(&to.wanted()?, manifest.into()).await
    };
    watched(put, &sent, total, words).await?;
    Ok(to.pinned(digest))
}
