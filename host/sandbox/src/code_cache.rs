//! Compiled code on disk, so that a start need not compile what an earlier one did.
//!
//! Deserializing forged code is running it: wasmtime does not check what it maps. So each file begins
//! with an HMAC-SHA256 over the component's digest, the engine's compatibility hash and the code, and
//! nothing is deserialized before it matches. The key lives outside the cache folder: whoever can
//! write there cannot sign.
//!
//! The cache is a convenience. A file that is missing, cut, tampered with or from another version is
//! compiled anew and replaced; a folder that cannot be written costs start-up time only.
//!
//! Each load touches its file, and a start removes those that none has touched for [`UNUSED_FOR`].
//! Gateways of several versions may thus share a folder; the worst that one can do to another is to
//! have it compile again.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, Mac};
use sha2::Sha256;
use wasmtime::component::Component;
use weir_storage::secrets::Key;

use crate::digest::Digest;
use crate::engine::Engine;

const TAG_BYTES: usize = 32;

/// How long compiled code is kept that no start uses: long enough to go back to the last version.
pub const UNUSED_FOR: Duration = Duration::from_hours(30 * 24);

/// How long a file that is being written is left alone; writing one takes milliseconds.
const WRITTEN_WITHIN: Duration = Duration::from_hours(1);

/// A folder of compiled components.
pub struct CodeCache {
    folder: PathBuf,
    key: Key,
}

impl CodeCache {
    /// Uses a folder, which need not exist yet, under a key that is kept elsewhere.
    pub fn new(folder: PathBuf, key: Key) -> Self {
        Self { folder, key }
    }

    /// The compiled component, if it is there and its tag holds.
    pub(crate) fn load(&self, engine: &Engine, digest: &Digest) -> Option<Component> {
        let path = self.path(engine, digest);
        let file = std::fs::read(&path).ok()?;
        let (tag, code) = file.split_at_checked(TAG_BYTES)?;
        if self.mac(engine, digest, code).verify_slice(tag).is_err() {
            tracing::warn!(file = %path.display(), "compiled code does not match its tag; compiling anew");
            return None;
        }
        // SAFETY: the tag was made under our key over exactly these bytes, for this component and
        // an engine with this compatibility hash, so they are `Component::serialize`'s output.
        match unsafe { Component::deserialize(&engine.wasm, code) } {
            Ok(component) => {
                touch(&path);
                Some(component)
            }
            Err(error) => {
                tracing::warn!(%error, "compiled code does not load; compiling anew");
                None
            }
        }
    }

    /// Whether there is compiled code of a component; whether it holds shows when it is loaded.
    pub fn contains(&self, engine: &Engine, digest: &Digest) -> bool {
        self.path(engine, digest).exists()
    }

    /// Keeps compiled code for the next start.
    pub(crate) fn store(&self, engine: &Engine, digest: &Digest, code: &[u8]) {
        if let Err(error) = self.try_store(engine, digest, code) {
            tracing::warn!(%error, folder = %self.folder.display(), "compiled code cannot be kept");
        }
    }

    /// Removes what no start has used for long, and what a crash left half-written. Other files in the
    /// folder are not this module's to remove.
    pub fn remove_unused(&self, now: SystemTime) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return;
        };
        for entry in entries.flatten() {
            let Some(kept_for) = entry.file_name().to_str().and_then(kept_for) else {
                continue;
            };
            let used_at = entry.metadata().and_then(|metadata| metadata.modified());
            let unused_for = used_at.ok().and_then(|at| now.duration_since(at).ok());
            if unused_for.is_some_and(|unused_for| unused_for > kept_for) {
                // Another process may have been faster.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn try_store(&self, engine: &Engine, digest: &Digest, code: &[u8]) -> anyhow::Result<()> {
        let mut file = self
            .mac(engine, digest, code)
            .finalize()
            .into_bytes()
            .to_vec();
        file.extend_from_slice(code);
        std::fs::create_dir_all(&self.folder)?;
        replace_file(&self.path(engine, digest), &file)
    }

    fn mac(&self, engine: &Engine, digest: &Digest, code: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.key.mac(b"weir compiled component v1\0");
        mac.update(digest.as_bytes());
        mac.update(&engine.compatibility().to_le_bytes());
        mac.update(code);
        mac
    }

    fn path(&self, engine: &Engine, digest: &Digest) -> PathBuf {
        self.folder
            .join(format!("{digest}-{:016x}.cwasm", engine.compatibility()))
    }
}

/// How long a file of this name is kept; `None` for one that this module cannot have written.
fn kept_for(name: &str) -> Option<Duration> {
    let is_hex = |text: &str, digits| {
        text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let (stem, ending) = name.split_once('.')?;
    let (digest, compatibility) = stem.split_once('-')?;
    if !is_hex(digest, 64) || !is_hex(compatibility, 16) {
        return None;
    }
    match ending.strip_suffix(".tmp") {
        Some(unique) => is_hex(unique, 32).then_some(WRITTEN_WITHIN),
        None => (ending == "cwasm").then_some(UNUSED_FOR),
    }
}

/// Marks a file as used. One that is only readable here counts as unused, which costs little.
fn touch(path: &Path) {
    if let Ok(file) = std::fs::File::options().append(true).open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Writes beside the target and renames, so that a reader sees the old file or the new one.
fn replace_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let beside = path.with_extension(format!("{}.tmp", uuid::Uuid::now_v7().simple()));
    std::fs::write(&beside, bytes)?;
    std::fs::rename(&beside, path)?;
    Ok(())
}
