//! The link to the development gateway that the user started last, for commands that run in another folder.
//!
//! `weir serve` in development mode leaves a link to its data folder in the user's state folder,
//! `~/.local/state/weir/development`. A command follows the link if it has no configuration and no database of its own.
//!
//! **Invariant:** a command follows the link only to a running gateway of the same user. The user must own the link and
//! the data folder, and a process must listen at its admin socket. Commands ignore a link that a stopped gateway left
//! behind.

use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::Context;
use weir_app::config::Config;
use weir_storage::secrets::create_private_folder;

use super::user_folder::user_folder;

fn link() -> Option<PathBuf> {
    Some(user_folder("XDG_STATE_HOME", ".local/state")?.join("development"))
}

/// Creates the link to a gateway's data folder and replaces an older link. Errors are logged only: a gateway serves
/// without the link, too.
pub(super) fn leave_link(config: &Config) {
    if let Err(error) = try_leave_link(&config.data_dir) {
        tracing::debug!("commands in other folders cannot find this gateway: {error:#}");
    }
}

fn try_leave_link(data: &Path) -> anyhow::Result<()> {
    let link = link().context("the user has no home")?;
    let folder = link.parent().context("a link lies in a folder")?;
    create_private_folder(folder)?;
    let beside = link.with_extension(std::process::id().to_string());
    symlink(std::path::absolute(data)?, &beside)?;
    let renamed = std::fs::rename(&beside, &link);
    if renamed.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    renamed.context("replacing the link")
}

/// Returns the configuration for a command that contacts a gateway. If the command has neither a configuration nor a
/// database of its own, the configuration has the data folder of the running development gateway.
pub(super) fn follow_link(mut config: Config, file: Option<&Path>) -> Config {
    let is_configured = file.is_some()
        || Path::new("weir.toml").exists()
        || ["data_dir", "database_url", "dev", "admin_socket"]
            .iter()
            .any(|name| Config::sources(None).is_ok_and(|sources| sources.contains_key(*name)));
    if is_configured || config.has_database() {
        return config;
    }
    if let Some(data) = running() {
        eprintln!("Using the development gateway of {}.", data.display());
        config.data_dir = data;
    }
    config
}

/// Returns the data folder behind the link if a gateway of this user runs on it.
fn running() -> Option<PathBuf> {
    let link = link()?;
    let uid = rustix::process::geteuid().as_raw();
    let is_own = |owner: u32| owner == uid;
    let data = std::fs::read_link(&link).ok()?;
    let owners = [
        std::fs::symlink_metadata(&link).ok()?.uid(),
        std::fs::metadata(&data).ok()?.uid(),
    ];
    let is_running = data.is_absolute()
        && owners.into_iter().all(is_own)
        && UnixStream::connect(data.join("admin.sock")).is_ok();
    is_running.then_some(data)
}
