//! Compiled code on disk: a start need not compile code that an earlier start compiled.
//!
//! To deserialize forged code is to run it, since wasmtime does not check the code that it maps. Each file therefore
//! begins with an HMAC-SHA256 over the component's digest, the engine's compatibility hash and the code, and no code
//! is deserialized before the HMAC matches. The key lives outside the cache folder: write access to the folder is not
//! enough to sign.
//!
//! A file is read only if it is a regular file of a plausible size: a link, a pipe or a device in the folder is no code.
//!
//! The cache is optional. If a file is missing, truncated, tampered with or from another version, weir compiles anew
//! and replaces the file; a read-only folder costs only start-up time.
//!
//! Each load touches its file, and a start removes files that were not touched for [`UNUSED_FOR`]. Gateways of
//! several versions may share a folder; the worst effect of one on another is a second compilation.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, Mac};
use rustix::fs::OFlags;
use sha2::Sha256;
use wasmtime::component::Component;
use weir_storage::secrets::{SecretKey, create_private_folder};

use crate::compiler::CODE_BYTES;
use crate::digest::Digest;
use crate::engine::Engine;

const TAG_BYTES: usize = 32;

/// Lifetime of compiled code that no start uses: long enough for a rollback to the last version.
pub const UNUSED_FOR: Duration = Duration::from_hours(30 * 24);

/// Maximum age of an incomplete file; a write takes milliseconds.
const WRITTEN_WITHIN: Duration = Duration::from_hours(1);

/// A folder of compiled components.
pub struct CodeCache {
    folder: PathBuf,
    key: SecretKey,
}

impl CodeCache {
    /// Uses a folder, which need not exist yet. The key is stored elsewhere.
    pub fn new(folder: PathBuf, key: SecretKey) -> Self {
        Self { folder, key }
    }

    /// Uses folders in the home of this process's user: one for code, another for the key. They may be missing, but neither
    /// they nor the nearest folder above them may be a link, be another user's, or be writable by others.
    ///
    /// # Errors
    ///
    /// The folder that is refused, or cannot be created.
    pub fn of_user(folder: PathBuf, keys: &Path) -> anyhow::Result<Self> {
        own_folder(&folder)?;
        own_folder(keys)?;
        let key = SecretKey::load_or_create(&keys.join("plugin-cache.key"))?;
        Ok(Self::new(folder, key))
    }

    /// Returns the compiled component, if it exists and its tag matches.
    pub(crate) fn load(&self, engine: &Engine, digest: &Digest) -> Option<Component> {
        let path = self.path(engine, digest);
        let file = read_regular(&path)?;
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

    /// Returns whether compiled code of a component exists; only a load checks its tag.
    pub fn contains(&self, engine: &Engine, digest: &Digest) -> bool {
        self.path(engine, digest).exists()
    }

    /// Stores compiled code for the next start.
    pub(crate) fn store(&self, engine: &Engine, digest: &Digest, code: &[u8]) {
        if let Err(error) = self.try_store(engine, digest, code) {
            tracing::warn!(%error, folder = %self.folder.display(), "compiled code cannot be kept");
        }
    }

    /// Removes code that no start has used for long, and incomplete files of a crash. Other files in the folder stay.
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
                // Another process may have removed it already.
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

/// Reads a file that may be compiled code.
fn read_regular(path: &Path) -> Option<Vec<u8>> {
    // Without NONBLOCK, the open of a pipe would wait for a writer.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).ok()?;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let max_bytes = CODE_BYTES + TAG_BYTES as u64;
    if !metadata.is_file() || metadata.len() > max_bytes {
        tracing::warn!(file = %path.display(), "this is not compiled code; compiling anew");
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).ok()?);
    File::take(file, max_bytes).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Creates a folder in a home unless it exists, and checks that others cannot change its contents.
fn own_folder(folder: &Path) -> anyhow::Result<()> {
    let nearest = folder
        .ancestors()
        .find(|ancestor| ancestor.symlink_metadata().is_ok());
    // A folder of another user in a home, as under `sudo`, would be in the way of the home's owner.
    for folder in nearest.iter().copied().chain([folder]) {
        if folder.symlink_metadata().is_err() {
            create_private_folder(folder)?;
        }
        let metadata = folder.symlink_metadata()?;
        let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
        anyhow::ensure!(
            metadata.is_dir() && is_own && metadata.mode() & 0o022 == 0,
            "{} is a link, or other users own it or can write to it",
            folder.display()
        );
    }
    Ok(())
}

/// Returns the lifetime of a file by its name; `None` if this module cannot have written it.
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

/// Marks a file as used. A read-only file counts as unused, which costs little.
fn touch(path: &Path) {
    if let Ok(file) = std::fs::File::options().append(true).open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Writes a temporary file and renames it: a reader sees the old file or the new one.
fn replace_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let beside = path.with_extension(format!("{}.tmp", uuid::Uuid::now_v7().simple()));
    std::fs::write(&beside, bytes)?;
    std::fs::rename(&beside, path)?;
    Ok(())
}
