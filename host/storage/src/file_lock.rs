//! Files that processes lock against one another. The system releases the lock of a dead process.

use std::fs::{File, TryLockError};
use std::path::Path;

use anyhow::Context;

use crate::secrets::create_private_folder;

/// A locked file. A drop unlocks it explicitly: closing it is not enough while a process that is being started still
/// has a copy of its descriptor.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Waits until no other process has the lock.
    pub fn exclusive(path: &Path) -> anyhow::Result<Self> {
        let file = open(path)?;
        file.lock()
            .with_context(|| format!("locking {}", path.display()))?;
        Ok(Self(file))
    }

    /// Takes the lock, unless another process has it.
    pub fn try_exclusive(path: &Path) -> anyhow::Result<Option<Self>> {
        let file = open(path)?;
        let locked = file.try_lock();
        Self::locked(file, locked, path)
    }

    /// Takes a share of the lock, unless another process has it exclusively.
    pub fn try_shared(path: &Path) -> anyhow::Result<Option<Self>> {
        let file = open(path)?;
        let locked = file.try_lock_shared();
        Self::locked(file, locked, path)
    }

    fn locked(
        file: File,
        locked: Result<(), TryLockError>,
        path: &Path,
    ) -> anyhow::Result<Option<Self>> {
        match locked {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("locking {}", path.display()))
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "unlocking a file");
        }
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        create_private_folder(folder)?;
    }
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("creating {}", path.display()))
}
