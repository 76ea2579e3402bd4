//! `weir plugin push`, and `install` from a registry: components as artifacts of OCI registries.
//!
//! What is pushed has the [layout](https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/) that other
//! tools for WebAssembly read and write; a publisher's signature goes along as an [annotation](artifact::SIGNATURE). The
//! client is our own: it speaks five requests, and a registry that is not to be trusted must find bounds on all that it says,
//! and no credential of another host's.
//!
//! **Invariant:** nothing that is pulled is handed on before it has the digest that it was asked by.
//! **Invariant:** a tag that is a version names the version that the publisher has signed: a registry cannot pass an old version off as
//! a new one.
//! **Invariant:** a gateway never asks a registry: who runs the command does, with their own credentials.

mod artifact;
mod authorization;
mod client;
mod credentials;
mod push;
mod reference;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::{Context, anyhow, ensure};

use self::artifact::Pullable;
use self::client::RegistryClient;
pub(super) use self::push::{Push, push};
use weir_plugins::signature::Signature;

use self::reference::Reference;
use super::upload::{Words, watched};

/// What a registry had.
pub(super) struct Pulled {
    pub(super) component: Vec<u8>,
    pub(super) signature: Option<Signature>,
}

/// Fetches the component that an `oci://` reference names; nothing if it is a file's path.
pub(super) async fn pull(from: &Path, plain_http: bool) -> anyhow::Result<Option<Pulled>> {
    let Some(text) = from.to_str().filter(|text| reference::is_reference(text)) else {
        return Ok(None);
    };
    let reference = Reference::parse(text).map_err(|why| anyhow!("{text}: {why}"))?;
    let pulled = pull_from(&reference, plain_http).await;
    pulled.map(Some).with_context(|| reference.to_string())
}

async fn pull_from(reference: &Reference, plain_http: bool) -> anyhow::Result<Pulled> {
    let mut client = RegistryClient::new(reference, "pull", plain_http)?;
    let wanted = reference.wanted()?;
    let (digest, manifest) = client.manifest(&wanted).await?;
    if let Some(pinned) = reference.digest {
        ensure!(
            digest == pinned,
            "the registry's manifest is another: its digest is sha256:{digest}"
        );
    }
    let artifact = Pullable::read(&manifest)?;
    if let Some(signature) = &artifact.signature {
        reference.check_version(&signature.version)?;
    }
    let received = Arc::new(AtomicUsize::new(0));
    let words = Words {
        moving: "Pulling",
        after: "Checking",
    };
    let blob = client.blob(artifact.layer, artifact.bytes, &received);
    let component = watched(blob, &received, artifact.bytes, words).await?;
    eprintln!("Pulled {}", reference.pinned(digest));
    Ok(Pulled {
        component,
        signature: artifact.signature,
    })
}
