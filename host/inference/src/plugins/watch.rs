//! Hot reload of components for plugin authors: `weir serve --watch-plugins`.
//!
//! weir polls the folder a few times a second, which works on any file system. `NAME.wasm` becomes the active component
//! of the slot `NAME`. weir loads a changed file once two polls find it unchanged, since compilers write in pieces. If
//! weir rejects the file, the slot keeps its component.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use weir_plugins::Permissions;
use weir_plugins::slot_name::{SLOT_NAMES, is_slot_name};
use weir_plugins::slots::{ComponentOffer, SlotOperation};
use weir_sandbox::Digest;
use weir_sandbox::limits::COMPONENT_BYTES;
use weir_sandbox::loading::UploadedComponent;

use super::PluginParts;
use super::routes::fits;

/// The poll interval.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The actor in the events of slots.
const ACTOR: &str = "watch-plugins";

/// A file's time of modification, and its size in bytes.
type Stamp = (SystemTime, u64);

/// Watches a folder until the gateway stops. weir logs the result of each change.
pub async fn watch(parts: &PluginParts, folder: &Path, draining: &CancellationToken) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    let (mut seen, mut taken) = (BTreeMap::new(), BTreeMap::new());
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = draining.cancelled() => return,
        }
        let found = look(folder).await;
        for (file, stamp) in &found {
            let is_settled = seen.get(file) == Some(stamp);
            if is_settled && taken.insert(file.clone(), *stamp) != Some(*stamp) {
                let shown = file.display();
                match take_up(parts, file).await {
                    Ok((slot, digest)) => tracing::info!(slot, %digest, "{shown} is active"),
                    Err(why) => tracing::error!("{shown} is not activated: {why}"),
                }
            }
        }
        seen = found;
    }
}

/// Returns the components in a folder. A file that is missing for a moment, such as during a build, has no entry.
async fn look(folder: &Path) -> BTreeMap<PathBuf, Stamp> {
    let mut found = BTreeMap::new();
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else {
        return found;
    };
    while let Ok(Some(entry)) = entries.next_entry().await {
        let file = entry.path();
        if file.extension().is_none_or(|extension| extension != "wasm") {
            continue;
        }
        // The metadata follows links, because their targets change.
        if let Ok(metadata) = tokio::fs::metadata(&file).await
            && let Ok(changed) = metadata.modified()
            && metadata.is_file()
        {
            found.insert(file, (changed, metadata.len()));
        }
    }
    found
}

async fn take_up(parts: &PluginParts, file: &Path) -> Result<(String, Digest), String> {
    let slot = file.file_stem().unwrap_or_default().to_string_lossy();
    if !is_slot_name(&slot) {
        return Err(format!("its name is not valid for a slot. {SLOT_NAMES}"));
    }
    let bytes = tokio::fs::read(file).await;
    let bytes = bytes.map_err(|error| error.to_string())?;
    if bytes.len() > COMPONENT_BYTES {
        return Err(format!("it has more than {COMPONENT_BYTES} bytes"));
    }
    let bytes = Bytes::from(bytes);
    let arrived = UploadedComponent::new(bytes.clone()).await;
    if !parts.plugins.is_compiled(&arrived.digest) {
        tracing::info!(
            slot = &*slot,
            bytes = bytes.len(),
            "compiling {}",
            file.display()
        );
    }
    let operation = SlotOperation {
        slot: slot.into_owned(),
        actor: ACTOR.to_owned(),
        at: parts.clock.now(),
    };
    // The developer owns the folder, so all permissions are granted.
    let permissions = Permissions {
        downgrade: true,
        change_publisher: true,
    };
    let offer = ComponentOffer {
        bytes,
        signature: None,
        permissions,
    };
    let installed = parts
        .plugins
        .install(parts.stores(), &operation, offer, async |plugin| {
            fits(parts, &operation, plugin).await
        })
        .await
        .map_err(|error| error.to_string())?;
    if parts
        .plugins
        .serving_in(&operation.slot)
        .map(|plugin| plugin.digest())
        != Some(installed.digest)
    {
        let fits = async |plugin: &_| fits(parts, &operation, plugin).await;
        parts
            .plugins
            .activate(
                parts.stores(),
                &operation,
                installed.digest,
                permissions,
                fits,
            )
            .await
            .map_err(|error| error.to_string())?;
    }
    Ok((operation.slot, installed.digest))
}
