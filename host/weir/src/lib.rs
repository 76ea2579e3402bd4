//! weir: an inference gateway whose provider adapters are sandboxed WebAssembly components.
//!
//! - [`server`]: connections. [`router`]: all routes of the features.
//! - [`cli`]: the commands. `memory`: the allocator.
//!
//! The features are crates of their own, and [`weir_app`] composes them. `host/README.md` lists the crates, and the place
//! of each kind of change.

pub mod cli;
mod memory;
pub mod router;
pub mod server;
