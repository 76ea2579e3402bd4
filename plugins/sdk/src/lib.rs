//! The code that weir's own plugins share: the contract's types, requests and bodies, responses, blocks, fields, options,
//! stream framing, failures.
//!
//! An adapter implements [`adapter::Exchange`] on a type of its own and hands it to
//! [`export_adapter!`]. Its [`response::AnswerReader`] reads the provider's answer, and [`response::ResponseReader`] calls it.
//! All of that is plain Rust that runs and is tested natively; only the macro's expansion knows WebAssembly.
//!
//! A tool implements [`tool::Tool`] and hands it to [`export_tool!`], likewise; a filter [`filter::Filter`], to
//! [`export_filter!`].
//!
//! **Invariant:** nothing here reads a clock, a random number, a file or the network, so an
//! adapter that uses only this gives the same events for the same bytes. (`HashMap`'s default
//! hasher would ask the host for randomness: adapters have few keys, and use a `Vec`.)
//!
//! To frame another kind of stream, add a module beside [`sse`] and [`lines`].

pub mod adapter;
pub mod aws;
#[doc(hidden)]
pub mod bindings;
pub mod blocks;
pub mod body;
pub mod custom;
pub mod failure;
pub mod fields;
pub mod filter;
#[doc(hidden)]
pub mod filter_bindings;
pub mod fit;
pub mod json_texts;
pub mod lines;
pub mod long_texts;
pub mod media;
pub mod messages;
pub mod options;
pub mod path;
pub mod response;
pub mod sse;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod tool;
#[doc(hidden)]
pub mod tool_bindings;
pub mod walk;
pub mod wire;

pub use bindings::weir::plugin::{chat, log};
