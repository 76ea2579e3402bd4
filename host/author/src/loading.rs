//! Loading a component for one command.
//!
//! The compiled code is kept in the user's cache folder: a component of 18 MB takes seconds to compile, and authors run it often.
//! The key that authenticates the code lies in another folder.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use anyhow::anyhow;
use weir_plugins::Loader;
use weir_plugins::settings::PluginSettings;
use weir_plugins::slots::LoadedComponent;
use weir_sandbox::code_cache::CodeCache;
use weir_sandbox::compiler::Compiler;
use weir_sandbox::loading::UploadedComponent;
use weir_sandbox::{Engine, GuestCapacity, LoadError};
use weir_storage::secrets::SecretKey;

use crate::input::read;
use crate::notes::note;

/// Bytes of a component that takes seconds to compile, such as a component with a language's runtime.
const SLOW_BYTES: usize = 1 << 20;

/// Bytes of a guest's output that are shown.
const SHOWN_BYTES: usize = 64 << 10;

/// The places of the compiled code and its key.
#[derive(Debug, Clone)]
pub struct CodeCachePaths {
    pub folder: PathBuf,
    pub key: PathBuf,
}

/// Makes a loader with the limits of a gateway. It loads one component at a time, and shows on standard error the output of guests.
pub fn loader(
    settings: &PluginSettings,
    code_cache: Option<&CodeCachePaths>,
) -> anyhow::Result<Loader> {
    let engine = Engine::start(GuestCapacity {
        guests: 1,
        memory_bytes: settings.all_memory_bytes(),
    })?;
    let left = AtomicUsize::new(SHOWN_BYTES);
    let engine = engine.heard_by(Arc::new(move |written| show(written, &left)));
    let compiler = Compiler::new(settings.compile.clone());
    let cache = code_cache.and_then(open_code_cache);
    Loader::new(&engine, cache, compiler, settings.limits.clone())
}

/// Loads a component with all load steps, like a component that a gateway installs.
pub async fn load(
    loader: &Loader,
    file: &Path,
    bytes: Vec<u8>,
) -> Result<LoadedComponent, LoadError> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let size = bytes.len();
    let arrived = UploadedComponent::new(bytes.into()).await;
    if size >= SLOW_BYTES && !loader.is_compiled(&arrived.digest) {
        note(format_args!(
            "Compiling {}. The compiled code is kept.",
            file.display()
        ));
    }
    loader.load_arrived(&name, arrived).await
}

pub(crate) async fn load_file(loader: &Loader, file: &Path) -> anyhow::Result<LoadedComponent> {
    load_or_refuse(loader, file, read(file)?).await
}

/// Loads a component; the error names the file.
pub(crate) async fn load_or_refuse(
    loader: &Loader,
    file: &Path,
    bytes: Vec<u8>,
) -> anyhow::Result<LoadedComponent> {
    load(loader, file, bytes)
        .await
        .map_err(|error| anyhow!(error).context(format!("{} is refused", file.display())))
}

fn open_code_cache(paths: &CodeCachePaths) -> Option<Arc<CodeCache>> {
    match SecretKey::load_or_create(&paths.key) {
        Ok(key) => {
            let cache = CodeCache::new(paths.folder.clone(), key);
            cache.remove_unused(SystemTime::now());
            Some(Arc::new(cache))
        }
        Err(error) => {
            tracing::warn!("compiled code is not kept: {error:#}");
            None
        }
    }
}

/// Shows a guest's output, up to a bound, and without characters that control a terminal.
fn show(written: &[u8], left: &AtomicUsize) {
    let taken = left
        .try_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(written.len()))
        })
        .unwrap_or_default()
        .min(written.len());
    if taken == 0 {
        return;
    }
    let mut shown = String::with_capacity(taken);
    for character in String::from_utf8_lossy(&written[..taken]).chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            character if character.is_control() => shown.extend(character.escape_default()),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                shown.extend(character.escape_default());
            }
            character => shown.push(character),
        }
    }
    if taken < written.len() {
        shown.push_str("\n… and more, which is not shown\n");
    }
    // The command goes on if standard error is closed.
    let _ = std::io::stderr().write_all(shown.as_bytes());
}
