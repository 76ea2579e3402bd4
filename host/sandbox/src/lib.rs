//! The sandbox: WebAssembly components behind the contract in `wit/`, whatever their world.
//!
//! A component is hostile until proven otherwise. It is [loaded](loading) once: checked, compiled, asked what it is,
//! tried. Then each piece of work runs in a [guest] of its own: a fresh store with its own memory, dropped after the
//! work and never used again after a trap.
//!
//! What is the same for every component is generic over its [`World`]; what is not has a module a world:
//! [`adapter`] for provider adapters, [`tool`] for what agents' models call, [`filter`] for what looks at requests and their
//! answers.
//!
//! **Invariant:** a guest has no ambient authority: no network, files, environment, credential, and no memory of other
//! work.
//! **Invariant:** whatever a guest does ends as a typed [`GuestError`] of that one piece of work.
//! **Invariant:** code is native only if this process or a [child](compiler) of it compiled it, or its HMAC holds
//! ([`code_cache`]).
//!
//! **Architecture invariant:** nothing here knows a slot, a request, an account or HTTP beyond the names of headers: what
//! a component is used for is its user's.
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
