//! The parts that each feature takes from [`App`](super::App).
//!
//! A handler takes the parts of its feature as its state. Its feature then does not depend on `App`.

mod base;
mod billing;
mod inference;
mod keys;
mod mcp;
mod organisations;
mod plugins;
mod privacy;
mod recordings;
mod tasks;
mod tools;
mod vouchers;
