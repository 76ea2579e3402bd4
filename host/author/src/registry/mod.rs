//! `weir plugin push`, and `install` from a registry: components as artifacts of OCI registries.
//!
//! Artifacts have the [layout](https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/) of other WebAssembly tools. A
//! publisher's signature is an [annotation](artifact::SIGNATURE).
//!
//! The client is our own. `oci-client` 0.18 builds its own HTTP client, which follows redirects to any host, reads responses without
//! a size limit, and sends credentials to any token issuer that the registry names, also over plain HTTP. `docker_credential` 1.4
//! blocks without a time limit, and its errors print the output of a credential helper, which can be a secret.
//!
//! **Invariant:** weir checks the digest of a pulled component before anything else uses it.
//! **Invariant:** a tag that is a version must equal the signed version: a registry cannot pass an old version off as a new one.
//! **Invariant:** the command contacts the registry, with the credentials of its user. A gateway never contacts a registry.

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
use weir_plugins::signature::Signature;

use self::artifact::PullContent;
use self::client::RegistryClient;
pub use self::push::{PushRequest, PushedComponent};
pub use self::reference::ArtifactReference;
use crate::notes::note;
use crate::transfer::{TransferWords, with_progress};

#[derive(Debug)]
pub struct PulledComponent {
    pub component: Vec<u8>,
    /// The publisher's signature, if the artifact has one.
    pub signature: Option<Signature>,
}

/// Pulls the component of an `oci://` reference. Returns nothing for the path of a file.
///
/// # Errors
///
/// An invalid reference, a registry that fails or refuses, or an artifact that is not a component.
pub async fn pull(from: &Path, plain_http: bool) -> anyhow::Result<Option<PulledComponent>> {
    let Some(text) = from.to_str().filter(|text| reference::is_reference(text)) else {
        return Ok(None);
    };
    let reference = ArtifactReference::parse(text).map_err(|why| anyhow!("{text}: {why}"))?;
    let pulled = pull_from(&reference, plain_http).await;
    pulled.map(Some).with_context(|| reference.to_string())
}

async fn pull_from(
    reference: &ArtifactReference,
    plain_http: bool,
) -> anyhow::Result<PulledComponent> {
    let mut client = RegistryClient::new(reference, "pull", plain_http)?;
    let wanted = reference.wanted()?;
    let (digest, manifest) = client.manifest(&wanted).await?;
    if let Some(pinned) = reference.digest {
        ensure!(
            digest == pinned,
            "the registry's manifest has another digest: sha256:{digest}"
        );
    }
    let artifact = PullContent::read(&manifest)?;
    if let Some(signature) = &artifact.signature {
        reference.check_version(&signature.version)?;
    }
    let received = Arc::new(AtomicUsize::new(0));
    let words = TransferWords {
        moving: "Pulling",
        after: "Checking",
    };
    let blob = client.blob(artifact.layer, artifact.bytes, &received);
    let component = with_progress(blob, &received, artifact.bytes, words).await?;
    note(format_args!("Pulled {}", reference.pinned(digest)));
    Ok(PulledComponent {
        component,
        signature: artifact.signature,
    })
}
