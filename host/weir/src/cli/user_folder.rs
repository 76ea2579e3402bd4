//! weir's folders in its user's home, by the XDG base directories.

use std::path::PathBuf;

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
