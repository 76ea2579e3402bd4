//! weir's folders in its user's home, by the XDG base directories.

use std::path::PathBuf;

use weir_sandbox::code_cache::CodeCache;

/// Returns the folder of a kind, such as `XDG_CACHE_HOME`, with its default in the home; `None` for a user without a
/// home.
pub(super) fn user_folder(variable: &str, default: &str) -> Option<PathBuf> {
    let set = std::env::var_os(variable).map(PathBuf::from);
    let folder = set.filter(|folder| folder.is_absolute()).or_else(|| {
        let home = PathBuf::from(std::env::var_os("HOME")?);
        home.is_absolute().then(|| home.join(default))
    })?;
    Some(folder.join("weir"))
}

/// Returns the cache for the compiled code of bundled plugins, which all gateways and commands of this user share. Its key
/// lies in another folder. Without a home, or if others can write to these folders, each gateway keeps the code in its
/// `data_dir`.
pub(super) fn shared_code() -> Option<CodeCache> {
    let folder = user_folder("XDG_CACHE_HOME", ".cache")?.join("bundled");
    let keys = user_folder("XDG_STATE_HOME", ".local/state")?;
    match CodeCache::of_user(folder, &keys) {
        Ok(cache) => Some(cache),
        Err(error) => {
            tracing::debug!("compiled code is kept in `data_dir`: {error:#}");
            None
        }
    }
}
