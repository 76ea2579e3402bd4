//! The sandbox: WebAssembly components of every world of the contract in `wit/`.
//!
//! A component is hostile until proven otherwise. It is [loaded](loading) once: checked, compiled, described, tried.
//! Then each piece of work runs in a [guest] of its own: a fresh store with its own memory, dropped after the work
//! and never used again after a trap.
//!
//! Code for every component is generic over its [`World`]; each world has a module for the rest: [`adapter`] for
//! provider adapters, [`tool`] for tools that agents' models call, [`filter`] for filters of requests and responses.
//!
//! **Invariant:** a guest has no ambient authority: no network, files, environment, credential, and no memory of other
//! work.
//! **Invariant:** every failure of a guest ends as a typed [`GuestError`] of that one piece of work.
//! **Invariant:** code is native only if this process or a [child](compiler) of it compiled it, or its HMAC holds
//! ([`code_cache`]).
//!
//! **Architecture invariant:** no code here knows a slot, a request, an account or HTTP beyond the names of headers:
//! the caller decides the use of a component.
//!
//! To change the resources of a guest, edit [`limits`]; to change its imports, edit its world and [`loading`]; to
//! change its interruption, edit [`engine`]. To run another kind of plugin, implement [`World`] in a module of its
//! own.

pub mod adapter;
pub mod child;
pub mod code_cache;
pub mod compiler;
mod configuration;
mod digest;
pub mod engine;
mod exports;
pub mod filter;
pub mod guest;
mod guest_clock;
mod guest_log;
pub mod limits;
mod load_error;
pub mod loading;
mod memory_budget;
mod printable;
mod slow_lane;
mod stderr_tail;
pub mod tool;
mod vocabulary;
mod words;
pub mod world;

pub use self::configuration::ConfigureError;
pub use self::digest::{Digest, NoDigest};
pub use self::engine::{Engine, GuestCapacity};
pub use self::guest::GuestError;
pub use self::limits::GuestLimits;
pub use self::loading::LoadError;
pub use self::printable::printable;
pub use self::stderr_tail::StderrListener;
pub use self::world::{LoadedCode, Sandbox, World};
