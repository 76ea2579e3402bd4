//! `weir plugin push`: a component goes to a registry.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::{Context, ensure};
use bytes::Bytes;
use weir_plugins::Loader;
use weir_plugins::signature::Signature;
use weir_sandbox::Digest;

use super::artifact::PushContent;
use super::client::RegistryClient;
use super::reference::ArtifactReference;
use crate::input::read_component;
use crate::signing;
use crate::transfer::{TransferWords, with_progress};

#[derive(Debug)]
pub struct PushRequest<'a> {
    /// The component's file.
    pub component: &'a Path,
    /// The repository and the tag.
    pub to: &'a ArtifactReference,
    /// The file of the signature. Default: `FILE.sig`, if it exists.
    pub signature: Option<&'a Path>,
    /// The file with a private key, to sign the component now.
    pub key: Option<&'a Path>,
    /// The slot of the new signature. Default: the component's name.
    pub slot: Option<String>,
    /// True for a registry without TLS.
    pub plain_http: bool,
}

#[derive(Debug)]
pub struct PushedComponent {
    pub reference: ArtifactReference,
    /// The signature that the artifact carries.
    pub signature: Option<Signature>,
}

impl PushRequest<'_> {
    /// Pushes the component.
    ///
    /// # Errors
    ///
    /// A component that does not load, a signature that does not hold, or a registry that fails or refuses.
    pub async fn push(self, loader: &Loader) -> anyhow::Result<PushedComponent> {
        let component = read_component(self.component)?;
        let digest = Digest::of(&component);
        let plugin = signing::load_plugin(loader, self.component).await?;
        let signature = match self.key {
            Some(key) => Some(signing::sign_plugin(
                &plugin,
                key,
                self.slot,
                self.component,
            )?),
            None => signing::find_signature(self.component, self.signature)?,
        };
        if let Some(signature) = &signature {
            ensure!(
                signature.digest == digest && signature.is_genuine(),
                "the signature is not for {}, and gateways would refuse it: sign the component again, or use --signature",
                self.component.display()
            );
            self.to.check_version(&signature.version)?;
        }
        let artifact = PushContent::of(
            &component,
            plugin.name(),
            plugin.version(),
            signature.as_ref(),
        )?;
        let reference = send(self.to, self.plain_http, component.into(), artifact).await;
        Ok(PushedComponent {
            reference: reference.with_context(|| self.to.to_string())?,
            signature,
        })
    }
}

async fn send(
    to: &ArtifactReference,
    plain_http: bool,
    component: Bytes,
    PushContent { config, manifest }: PushContent,
) -> anyhow::Result<ArtifactReference> {
    let mut client = RegistryClient::new(to, "pull,push", plain_http)?;
    let (total, sent) = (component.len(), Arc::new(AtomicUsize::new(0)));
    let digest = Digest::of(&manifest);
    let words = TransferWords {
        moving: "Pushing",
        after: "Waiting for the registry",
    };
    let put = async {
        client.put_blob(component, &sent).await?;
        client.put_blob(config.into(), &Arc::default()).await?;
        // The manifest refers to the blobs: a registry accepts it last.
        client.put_manifest(&to.wanted()?, manifest.into()).await
    };
    with_progress(put, &sent, total, words).await?;
    Ok(to.pinned(digest))
}
