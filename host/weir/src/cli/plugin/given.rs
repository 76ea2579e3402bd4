//! What `weir plugin` is given: a slot's name, a component's file, requests, recordings, and what a plugin is
//! told.
//!
//! Compiled code is kept in the user's cache folder, under a key that lies elsewhere: a component of 18 MB takes seconds to
//! compile, and is tried again and again.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use anyhow::{Context, anyhow, ensure};
use weir_dialects::{self as dialect, Call, ChatCall};
use weir_plugins::Loader;
use weir_plugins::slot_name::{SLOT_NAMES, is_slot_name};
use weir_plugins::slots::Loaded;
use weir_sandbox::code_cache::CodeCache;
use weir_sandbox::compiler::Compiler;
use weir_sandbox::limits::COMPONENT_BYTES;
use weir_sandbox::loading::Arrived;
use weir_sandbox::tool::bindings::tool::{CallContext, Integration};
use weir_sandbox::{Engine, LoadError, Room};
use weir_storage::secrets::Key;

use super::recording::Recording;
use super::trial::TrialRequest;
use crate::cli::user_folder::user_folder;
use crate::config::Config;
use weir_upstream::recorded::RecordedRequest;

/// The output limit of a request that has none; in the server it is the model's.
const DEFAULT_OUTPUT_TOKENS: u32 = 1024;

/// Bytes of a component that takes seconds to compile, such as one with a language's runtime in it.
const SLOW_BYTES: usize = 1 << 20;

/// Bytes of what guests write that are shown.
const SHOWN_BYTES: usize = 64 << 10;

/// What a plugin is told beside its request.
#[derive(clap::Args)]
pub(super) struct PluginInput {
    /// Of a tool: an integration that its agent may call. May be repeated, as the next ones.
    #[arg(long = "integration", value_name = "ID=URL", value_parser = option)]
    integrations: Vec<(String, String)>,
    /// Of a tool: a webhook of its agent's.
    #[arg(long = "webhook", value_name = "URL")]
    webhooks: Vec<String>,
    /// Of a tool: the name of a credential; one of an integration's id is that integration's.
    #[arg(long = "credential", value_name = "NAME")]
    credentials: Vec<String>,
    /// Of a filter: the name of a provider that may serve the request; `provider` unless told.
    #[arg(long = "provider", value_name = "NAME")]
    providers: Vec<String>,
    /// Of an adapter or a filter: an option, as a provider's or a filter's `options` in the configuration have them. May be
    /// repeated.
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = option)]
    pub(super) options: Vec<(String, String)>,
}

impl PluginInput {
    /// What a filter is told may serve a request.
    pub(super) fn providers(&self) -> Vec<String> {
        match &self.providers[..] {
            [] => vec!["provider".to_owned()],
            providers => providers.to_vec(),
        }
    }

    /// What a tool is told that its agent may use.
    pub(super) fn context(&self) -> CallContext {
        let integrations = self.integrations.iter().map(|(id, base_url)| Integration {
            id: id.clone(),
            base_url: base_url.trim_end_matches('/').to_owned(),
            credential: self.credentials.iter().find(|name| *name == id).cloned(),
        });
        CallContext {
            webhook_urls: self.webhooks.clone(),
            integrations: integrations.collect(),
            credentials: self.credentials.clone(),
        }
    }
}

/// Loads components, one at a time, and shows on standard error what they write.
pub(super) fn loader(config: &Config) -> anyhow::Result<Loader> {
    let engine = Engine::start(Room {
        guests: 1,
        memory_bytes: config.plugins.all_memory_bytes(),
    })?;
    let left = AtomicUsize::new(SHOWN_BYTES);
    let engine = engine.heard_by(Arc::new(move |written| show(written, &left)));
    let compiler = Compiler::new(config.plugins.compile.clone());
    let limits = config.plugins.limits.clone();
    Loader::new(&engine, code_cache(), compiler, limits)
}

/// Loads a component as one that has arrived from elsewhere.
pub(super) async fn load(
    loader: &Loader,
    file: &Path,
    bytes: Vec<u8>,
) -> Result<Loaded, LoadError> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let size = bytes.len();
    let arrived = Arrived::new(bytes.into()).await;
    if size >= SLOW_BYTES && !loader.is_compiled(&arrived.digest) {
        eprintln!("compiling {}, once: its code is kept", file.display());
    }
    loader.load_arrived(&name, arrived).await
}

/// What a file holds.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("reading {}", file.display()))
}

/// The name of a slot. It becomes a part of a URL.
pub(in crate::cli) fn slot_name(slot: &str) -> Result<String, String> {
    match is_slot_name(slot) {
        true => Ok(slot.to_owned()),
        false => Err(SLOT_NAMES.to_owned()),
    }
}

/// A component, unless it is larger than any may be.
pub(super) fn read_component(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = read(path)?;
    // Every gateway refuses it, after a long upload.
    ensure!(
        bytes.len() <= COMPONENT_BYTES,
        "{} has {} bytes; a component has at most {COMPONENT_BYTES}",
        path.display(),
        bytes.len()
    );
    Ok(bytes)
}

/// What a file holds, or standard input.
pub(super) fn read_given(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file != Path::new("-") {
        return read(file);
    }
    let mut given = Vec::new();
    std::io::stdin()
        .read_to_end(&mut given)
        .context("reading standard input")?;
    Ok(given)
}

/// A request as weir's own endpoints take it.
///
/// Or one that was recorded, in the vocabulary of the contract.
pub(super) fn read_request(body: &[u8]) -> anyhow::Result<TrialRequest> {
    if is_recorded(body) {
        let recorded: RecordedRequest =
            serde_json::from_slice(body).context("the recorded request cannot be read")?;
        return TrialRequest::recorded(&recorded, body.len());
    }
    let call = dialect::read_any(body).map_err(|error| {
        let refused = format!("{} {}", error.status().as_u16(), error.code());
        anyhow!("the request is refused: {refused}: {}", error.message())
    })?;
    Ok(match call {
        Call::Chat(call) => with_limit(*call).into(),
        Call::Images(call) => (*call).into(),
    })
}

/// Whether it is what `weir record` has recorded.
fn is_recorded(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Mark {
        #[serde(rename = "recorded")]
        _recorded: serde::de::IgnoredAny,
    }
    serde_json::from_slice::<Mark>(body).is_ok()
}

/// A request whose model has an output limit.
pub(super) fn with_limit(mut call: ChatCall) -> ChatCall {
    call.request.max_output_tokens = call.output_limit.unwrap_or(DEFAULT_OUTPUT_TOKENS);
    call
}

/// A recorded answer.
pub(super) fn read_recording(file: &Path) -> anyhow::Result<Recording> {
    Recording::parse(&read(file)?)
        .map_err(|why| anyhow!("{} is no recorded answer: {why}", file.display()))
}

/// Where compiled code is kept; nowhere for who has no home.
fn code_cache() -> Option<Arc<CodeCache>> {
    let folder = user_folder("XDG_CACHE_HOME", ".cache")?.join("plugins");
    let key = user_folder("XDG_DATA_HOME", ".local/share")?.join("plugin-cache.key");
    match Key::load_or_create(&key) {
        Ok(key) => {
            let cache = CodeCache::new(folder, key);
            cache.remove_unused(SystemTime::now());
            Some(Arc::new(cache))
        }
        Err(error) => {
            tracing::warn!("compiled code is not kept: {error:#}");
            None
        }
    }
}

/// Shows what a guest writes, as long as it is not too much, and nothing that would drive a terminal.
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
    // Nobody is to be told that nobody reads.
    let _ = std::io::stderr().write_all(shown.as_bytes());
}

fn option(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "is not NAME=VALUE".to_owned())
}
