//! `weir plugin keygen`, `sign` and `verify`: the keys and signatures of publishers.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};
use semver::Version;
use weir_plugins::signature::{PublisherKey, Signature, SigningKey};
use weir_plugins::trust::Trust;
use weir_plugins::{Loader, Plugin};
use weir_sandbox::Digest;

use crate::input::{read_component, slot_name};
use crate::loading;

/// Writes a new private key to a file that only its owner can read, and returns the public key. An existing file is an error.
pub fn generate_key(path: &Path) -> anyhow::Result<PublisherKey> {
    let (key, pem) = SigningKey::generate()?;
    let writing = || format!("writing {}", path.display());
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(writing)?;
    file.write_all(pem.as_bytes()).with_context(writing)?;
    file.sync_all().with_context(writing)?;
    Ok(key.public_key())
}

#[derive(Debug)]
pub struct SignatureFile {
    /// `FILE.sig`.
    pub path: PathBuf,
    pub signature: Signature,
}

/// Signs a component with the private key in a file, and writes `FILE.sig`. Without `slot`, the slot is the component's name.
pub async fn sign(
    loader: &Loader,
    component: &Path,
    key: &Path,
    slot: Option<String>,
) -> anyhow::Result<SignatureFile> {
    let plugin = load_plugin(loader, component).await?;
    let signature = sign_plugin(&plugin, key, slot, component)?;
    let path = signature_path(component);
    std::fs::write(&path, signature.to_json() + "\n")
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(SignatureFile { path, signature })
}

/// The signers that a verification accepts.
#[derive(Debug)]
pub enum AcceptedSigner {
    /// One public key.
    Key(PublisherKey),
    /// The publishers of a configuration.
    Publishers(Trust),
}

/// A signature that holds for a component.
#[derive(Debug)]
pub struct VerifiedSignature {
    /// The name of the publisher, or "the key" and the public key.
    pub signer: String,
    pub signature: Signature,
}

/// Verifies the signature of a component. Without `signature`, the file is `FILE.sig`.
///
/// # Errors
///
/// A signature of other bytes, of another signer, or for another slot.
pub fn verify(
    component: &Path,
    signature: Option<&Path>,
    accepted: &AcceptedSigner,
    slot: Option<&str>,
) -> anyhow::Result<VerifiedSignature> {
    let bytes = read_component(component)?;
    let signature = match signature {
        Some(path) => read(path)?,
        None => read(&signature_path(component))?,
    };
    let digest = Digest::of(&bytes);
    ensure!(
        signature.digest == digest,
        "the signature is for other bytes: its digest is {}, and the component's is {digest}",
        signature.digest
    );
    let signer = match accepted {
        AcceptedSigner::Key(key) => check_key(&signature, *key)?,
        AcceptedSigner::Publishers(trust) => trust.signer(&signature)?,
    };
    if let Some(slot) = slot {
        ensure!(
            slot == signature.slot,
            "the signature is for the slot {}, and not for {slot}",
            signature.slot
        );
    }
    Ok(VerifiedSignature { signer, signature })
}

/// Reads the signature of a component from `named`, or from `FILE.sig` if that file exists.
pub fn find_signature(component: &Path, named: Option<&Path>) -> anyhow::Result<Option<Signature>> {
    match named {
        Some(path) => read(path).map(Some),
        None => {
            let path = signature_path(component);
            path.exists().then(|| read(&path)).transpose()
        }
    }
}

/// Returns the kind, version, slot and digest of a signature, for people.
pub fn describe(signature: &Signature) -> String {
    format!(
        "the {} {} for the slot {}, {}",
        signature.kind.as_str(),
        signature.version,
        signature.slot,
        signature.digest
    )
}

/// Loads a component, which describes its name and version.
pub(crate) async fn load_plugin(loader: &Loader, component: &Path) -> anyhow::Result<Plugin> {
    let loaded = loading::load_file(loader, component).await?;
    Ok(loaded.counting(Arc::default()))
}

/// Signs a component with its own version, for a slot. Without `slot`, the slot is the component's name.
pub(crate) fn sign_plugin(
    plugin: &Plugin,
    key: &Path,
    slot: Option<String>,
    component: &Path,
) -> anyhow::Result<Signature> {
    let pem = std::fs::read_to_string(key).with_context(|| format!("reading {}", key.display()))?;
    let key = SigningKey::parse(&pem).with_context(|| {
        format!(
            "{} is not a private key of `weir plugin keygen`",
            key.display()
        )
    })?;
    let version = Version::parse(plugin.version()).map_err(|error| {
        anyhow!(
            "the version {1:?} of {0} cannot be compared with others: {error}; use three numbers, as in 1.4.0",
            component.display(),
            plugin.version()
        )
    })?;
    let slot = match slot {
        Some(slot) => slot,
        None => slot_name(plugin.name()).map_err(|rule| {
            anyhow!(
                "the component's name {:?} is not a slot: {rule} Use --slot.",
                plugin.name()
            )
        })?,
    };
    let (kind, digest) = (plugin.kind(), plugin.digest());
    Ok(Signature::of(&key, kind, &slot, version, digest))
}

fn check_key(signature: &Signature, key: PublisherKey) -> anyhow::Result<String> {
    ensure!(
        signature.key == key,
        "the signature is from another key: {}",
        signature.key
    );
    ensure!(
        signature.is_genuine(),
        "the signature is invalid: the key did not make it"
    );
    Ok(format!("the key {key}"))
}

/// Returns `FILE.sig`.
fn signature_path(component: &Path) -> PathBuf {
    let mut path = component.as_os_str().to_owned();
    path.push(".sig");
    path.into()
}

fn read(path: &Path) -> anyhow::Result<Signature> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Signature::parse(&text).map_err(|why| anyhow!("{} is not a signature: {why}", path.display()))
}
