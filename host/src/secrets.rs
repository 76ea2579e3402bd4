//! Secrets in memory and their files: what prints masked, and what only the owner can read.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, bail};

/// A 256-bit key. Prints masked.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// A key with this value, e.g. one that a test chose.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key's bytes.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads a key from its file, or makes one from the system's randomness if there is none.
    ///
    /// The file has mode 0600; one that others can read is refused, since what it protects is
    /// forfeit.
    pub fn load_or_create(path: &Path) -> anyhow::Result<Self> {
        if let Some(folder) = path.parent() {
            create_private_folder(folder)?;
        }
        let key = random_bytes::<32>();
        match std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
        {
            Ok(mut file) => {
                file.write_all(&key)
                    .and_then(|()| file.sync_all())
                    .with_context(|| format!("writing {}", path.display()))?;
                return Ok(Self(key));
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("creating {}", path.display()));
            }
        }
        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            bail!(
                "{} can be read by others (mode {:o}); run: chmod 600 {0}",
                path.display(),
                mode & 0o777
            );
        }
        let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        match bytes.try_into() {
            Ok(bytes) => Ok(Self(bytes)),
            Err(_) => bail!("{} does not hold a key of 32 bytes", path.display()),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(****)")
    }
}

/// A text that must not be shown, such as an upstream's credential. Prints masked.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(****)")
    }
}

/// Creates a folder that only its owner can enter, if it is not there.
pub fn create_private_folder(path: &Path) -> anyhow::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("creating the folder {}", path.display()))
}

/// Bytes from the system's randomness.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system's randomness is there from boot on");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_print_masked() {
        assert_eq!(format!("{:?}", Secret::new("sk-1".into())), "Secret(****)");
        assert_eq!(format!("{:?}", Key::new([7; 32])), "Key(****)");
    }
}
