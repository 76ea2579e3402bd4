//! Sandboxed plugins: WebAssembly components behind the contract in `wit/`.
//!
//! A component is hostile until proven otherwise. It is [loaded](loading) once: checked, compiled,
//! asked what it is, tried on a stock request. Then every exchange runs in a [guest] of its own: a
//! fresh store with its own memory, dropped after the exchange and never used again after a trap.
//!
//! **Invariant:** a guest has no ambient authority: no network, files, environment, credential, and no
//! memory of other exchanges.
//! **Invariant:** whatever a guest does ends as a typed [`GuestError`] of that one exchange.
//! **Invariant:** code is native only if this process compiled it or its HMAC holds ([`code_cache`]).
//!
//! To change what a guest may use, edit [`limits`]; what it may import, [`loading`]; how it is
//! interrupted, [`engine`].

pub mod bindings;
pub mod bundled;
pub mod code_cache;
pub mod engine;
pub mod guest;
pub(crate) mod guest_log;
pub mod limits;
pub mod loading;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::ids::Hex;

use self::bindings::ProviderPre;
pub use self::bindings::adapter::Description;
use self::bundled::Bundled;
use self::code_cache::CodeCache;
pub use self::engine::Engine;
use self::engine::Guest;
pub use self::guest::{GuestError, GuestExchange};
pub use self::limits::Limits;
pub use self::loading::LoadError;

/// The SHA-256 of a component's bytes: which code it was that served a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Its 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(formatter)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

/// A component that has passed every load step and can serve exchanges.
pub struct Adapter {
    /// What it says of itself.
    pub description: Description,
    program: Program,
}

impl Adapter {
    /// The slot that it fills, e.g. `openai`.
    pub fn name(&self) -> &Arc<str> {
        &self.program.name
    }

    /// Which code it is.
    pub fn digest(&self) -> Digest {
        self.program.digest
    }
}

/// Code that can be instantiated, and under which limits.
struct Program {
    name: Arc<str>,
    digest: Digest,
    component: ProviderPre<Guest>,
    limits: Limits,
    engine: Engine,
}

/// The adapters of a running gateway, by slot.
pub struct Plugins {
    adapters: BTreeMap<Arc<str>, Arc<Adapter>>,
}

impl Plugins {
    /// Loads components side by side; one that fails a step stops the start, with its name.
    pub async fn load(
        engine: &Engine,
        cache: Arc<CodeCache>,
        limits: &Limits,
        bundled: &[Bundled],
    ) -> Result<Self, (String, LoadError)> {
        let loads: Vec<_> = bundled
            .iter()
            .map(|plugin| {
                let (engine, cache, limits) = (engine.clone(), cache.clone(), limits.clone());
                let (name, bytes) = (plugin.name.clone(), plugin.bytes.clone());
                tokio::spawn(async move {
                    loading::load(&engine, Some(&cache), &limits, &name, &bytes)
                        .await
                        .map_err(|error| (name.into_owned(), error))
                })
            })
            .collect();
        let mut adapters = BTreeMap::new();
        for load in loads {
            let adapter = load
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
            tracing::debug!(plugin = &**adapter.name(), digest = %adapter.digest(), "plugin loaded");
            adapters.insert(adapter.name().clone(), Arc::new(adapter));
        }
        Ok(Self { adapters })
    }

    /// The adapter that fills a slot now.
    pub fn adapter(&self, slot: &str) -> Option<&Arc<Adapter>> {
        self.adapters.get(slot)
    }

    /// All slots and what fills them.
    pub fn adapters(&self) -> impl Iterator<Item = &Arc<Adapter>> {
        self.adapters.values()
    }
}
