//! Sandboxed plugins: WebAssembly components behind the contract in `wit/`.
//!
//! A component is hostile until proven otherwise. It is [loaded](loading) once: checked, compiled,
//! asked what it is, tried on a stock request. Then every exchange runs in a [guest] of its own: a
//! fresh store with its own memory, dropped after the exchange and never used again after a trap.
//!
//! Which component serves in which [slot](slots) is in the database, and every node follows it while it runs:
//! operators install, activate, roll back and remove through [`routes`], and a component that traps too often is taken
//! out of service by itself.
//!
//! **Invariant:** a guest has no ambient authority: no network, files, environment, credential, and no
//! memory of other exchanges.
//! **Invariant:** whatever a guest does ends as a typed [`GuestError`] of that one exchange.
//! **Invariant:** code is native only if this process or a [child](compiler) of it compiled it, or its HMAC holds
//! ([`code_cache`]).
//! **Invariant:** an exchange ends on the component that it began with, whatever its slot serves with by then.
//!
//! To change what a guest may use, edit [`limits`]; what it may import, [`loading`]; how it is
//! interrupted, [`engine`]; what operators can do to slots, [`slots`], with its SQL in `store`.

pub mod bindings;
pub mod bundled;
pub mod code_cache;
pub mod compiler;
pub mod counters;
pub mod engine;
pub mod guest;
pub(crate) mod guest_log;
pub mod limits;
pub mod loading;
pub mod routes;
pub mod settings;
pub mod slots;
mod store;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use weir_storage::ids::Hex;

use self::bindings::ProviderPre;
pub use self::bindings::adapter::Description;
use self::counters::Counters;
pub use self::engine::Engine;
use self::engine::Guest;
pub use self::guest::{GuestError, GuestExchange};
pub use self::limits::Limits;
pub use self::loading::LoadError;
pub use self::slots::{Loader, Plugins};

/// The SHA-256 of a component's bytes: which code it was that served a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// A text that is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 hexadecimal digits")]
pub struct NoDigest;

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(NoDigest);
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            let digits = &text[2 * index..2 * index + 2];
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NoDigest)?;
        }
        Ok(Self(bytes))
    }
}

/// A component that has passed every load step and can serve exchanges.
pub struct Adapter {
    /// What it says of itself.
    pub description: Description,
    /// The version of the contract that it was built for, e.g. `0.1.0`.
    pub contract: String,
    counters: Arc<Counters>,
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

    /// What it has done.
    pub fn counters(&self) -> &Counters {
        &self.counters
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
