//! The sandbox: WebAssembly components behind the contract in `wit/`.
//!
//! A component is hostile until proven otherwise. [Loading](loading) happens once: check, compile, describe, test. Then each
//! piece of work runs in a [guest] of its own: a fresh store with its own memory, dropped after the work and never used again
//! after a trap.
//!
//! Code for all components is generic over their [`World`]. Each world has a module for the rest: [`adapter`] for provider
//! adapters, [`tool`] for tools of agents' models, [`filter`] for filters of requests and answers.
//!
//! **Invariant:** a guest has no ambient authority: no network, files, environment, credential, and no memory of other
//! work.
//! **Invariant:** every failure of a guest is a typed [`GuestError`] of one piece of work.
//! **Invariant:** code is native only if this process or a [child](compiler) of it compiled it, or its HMAC holds
//! ([`code_cache`]).
//!
//! **Architecture invariant:** the sandbox knows no slot, request or account, and of HTTP only the names of headers. The
//! sandbox's users know the purpose of a component.
//!
//! To change what a guest may use, edit [`limits`]; what it may import, its world and [`loading`]; how it is interrupted,
//! [`engine`]. To run another kind of plugin, implement [`World`] in a module of its own.

pub mod adapter;
pub mod code_cache;
pub mod compiler;
mod configuration;
mod digest;
pub mod engine;
pub mod filter;
pub mod guest;
mod guest_clock;
mod guest_log;
mod last_words;
pub mod limits;
mod load_error;
pub mod loading;
mod memory_budget;
mod printable;
mod slow_lane;
pub mod tool;
mod words;
pub mod world;

pub use self::configuration::ConfigureError;
pub use self::digest::{Digest, NoDigest};
pub use self::engine::{Engine, Room};
pub use self::guest::GuestError;
pub use self::last_words::Listener;
pub use self::limits::GuestLimits;
pub use self::loading::LoadError;
pub use self::printable::printable;
pub use self::world::{LoadedCode, Sandbox, World};
