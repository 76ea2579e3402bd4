//! `weir plugin keygen|sign|verify`: publishers' keys and signatures.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};
use semver::Version;
use weir_plugins::Plugin;
use weir_plugins::signature::{PublicKey, Signature, SigningKey};

use super::given::{self, read_component, slot_name};
use crate::config::Config;
use weir_sandbox::Digest;

#[derive(clap::Args)]
pub(in crate::cli) struct Keygen {
    /// Where the private key goes, for its owner alone; no file that is there is written over.
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
    /// The slot that it may fill. Default: what the component calls itself.
    #[arg(long, value_parser = slot_name)]
    slot: Option<String>,
}

#[derive(clap::Args)]
pub(in crate::cli) struct Verify {
    /// The component: a .wasm file.
    #[arg(value_name = "FILE")]
    component: PathBuf,
    /// Its signature. Default: FILE.sig.
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    /// The slot that it must be for. Default: any.
    #[arg(long, value_parser = slot_name)]
    slot: Option<String>,
    /// The public key that it must be signed with. Default: any of the configuration's publishers.
    #[arg(long, value_name = "KEY", value_parser = PublicKey::parse)]
    key: Option<PublicKey>,
}

pub(super) fn keygen(Keygen { key: path }: &Keygen) -> anyhow::Result<()> {
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
    println!("{}", key.public_key());
    eprintln!(
        "The private key is in {}: keep it secret. Gateways take what it signs with:\n\n  \
         [plugins.publishers.NAME]\n  keys = [\"{}\"]\n  slots = [\"SLOT\"]",
        path.display(),
        key.public_key()
    );
    Ok(())
}

pub(super) async fn sign(config: &Config, sign: Sign) -> anyhow::Result<()> {
    let plugin = described_by_itself(config, &sign.component).await?;
    let signature = sign_as_itself(&plugin, &sign.key, sign.slot, &sign.component)?;
    let path = beside_path(&sign.component);
    std::fs::write(&path, signature.to_json() + "\n")
        .with_context(|| format!("writing {}", path.display()))?;
    println!("{}", path.display());
    eprintln!("Signed: {}", described(&signature));
    Ok(())
}

/// A component that has been asked what it is.
pub(super) async fn described_by_itself(
    config: &Config,
    component: &Path,
) -> anyhow::Result<Plugin> {
    let bytes = given::read(component)?;
    let loaded = given::load(&given::loader(config)?, component, bytes).await;
    let loaded = loaded
        .map_err(|error| anyhow!(error).context(format!("{} is refused", component.display())))?;
    Ok(loaded.counting(Arc::default()))
}

/// Signs a component as what it says that it is, with the key in a file, for a slot: unless one is named, the one that it is
/// called as.
pub(super) fn sign_as_itself(
    plugin: &Plugin,
    key: &Path,
    slot: Option<String>,
    component: &Path,
) -> anyhow::Result<Signature> {
    let pem = std::fs::read_to_string(key).with_context(|| format!("reading {}", key.display()))?;
    let key = SigningKey::parse(&pem).with_context(|| {
        format!(
            "{} is no private key as `weir plugin keygen` writes one",
            key.display()
        )
    })?;
    let version = Version::parse(plugin.version()).map_err(|error| {
        anyhow!(
            "{} says that it is version {:?}, which cannot be compared with others: {error}; use three numbers, \
             as in 1.4.0",
            component.display(),
            plugin.version()
        )
    })?;
    let slot = match slot {
        Some(slot) => slot,
        None => slot_name(plugin.name()).map_err(|rule| {
            anyhow!(
                "it calls itself {:?}: {rule} Name one with --slot.",
                plugin.name()
            )
        })?,
    };
    let (kind, digest) = (plugin.kind(), plugin.digest());
    Ok(Signature::of(&key, kind, &slot, version, digest))
}

pub(super) fn verify(config: &Config, verify: &Verify) -> anyhow::Result<()> {
    let bytes = read_component(&verify.component)?;
    let path = verify.signature.clone();
    let path = path.unwrap_or_else(|| beside_path(&verify.component));
    let signature = read(&path)?;
    let digest = Digest::of(&bytes);
    ensure!(
        signature.digest == digest,
        "the signature is for other bytes: for the digest {}, while the component's is {digest}",
        signature.digest
    );
    let signer = match verify.key {
        Some(key) => {
            ensure!(
                signature.key == key,
                "it is signed with another key: {}",
                signature.key
            );
            ensure!(
                signature.is_genuine(),
                "the signature does not hold: the key did not make it"
            );
            format!("the key {key}")
        }
        None => config.trust().signer(&signature)?,
    };
    if let Some(slot) = &verify.slot {
        ensure!(
            *slot == signature.slot,
            "the signature is for the slot {}, and not for {slot}",
            signature.slot
        );
    }
    println!("Good signature of {signer}: {}", described(&signature));
    Ok(())
}

/// The signature of a component: what a file holds that is named, or else the one beside it, if there is one.
pub(super) fn beside(component: &Path, named: Option<&Path>) -> anyhow::Result<Option<Signature>> {
    match named {
        Some(path) => read(path).map(Some),
        None => {
            let path = beside_path(component);
            path.exists().then(|| read(&path)).transpose()
        }
    }
}

/// `FILE.sig`.
fn beside_path(component: &Path) -> PathBuf {
    let mut path = component.as_os_str().to_owned();
    path.push(".sig");
    path.into()
}

fn read(path: &Path) -> anyhow::Result<Signature> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Signature::parse(&text).map_err(|why| anyhow!("{} is no signature: {why}", path.display()))
}

fn described(signature: &Signature) -> String {
    format!(
        "the {} {} for the slot {}, {}",
        signature.kind.as_str(),
        signature.version,
        signature.slot,
        signature.digest
    )
}
