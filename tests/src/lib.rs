//! The base of weir's tests: a running gateway, a scripted provider, guests that misbehave.
//!
//! All parts are real except the provider and most issuers of tokens: sockets, WebAssembly, databases. See
//! [`gateway::Gateway`], [`upstream::Upstream`], [`issuer::SigningKey`], [`oidc::OidcServer`], [`guests`] and
//! [`ledger`].

pub mod api;
pub mod client;
pub mod collector;
pub mod delayed_link;
pub mod gateway;
pub mod guests;
pub mod handovers;
pub mod http2;
pub mod issuer;
pub mod ledger;
pub mod oidc;
pub mod overload;
pub mod payments;
pub mod processor;
pub mod program;
pub mod raw;
pub mod readers;
pub mod recording;
pub mod registry;
pub mod sandbox;
pub mod scenario;
pub mod scripts;
pub mod source;
pub mod speaker;
pub mod stores;
pub mod strict;
pub mod switch;
pub mod tls;
pub mod upstream;

pub use client::{Answer, Client, EventStream, chunks, patiently, weirs_code};
pub use collector::Collector;
pub use gateway::{Gateway, chat, weir_program};
pub use http2::Http2;
pub use issuer::SigningKey;
pub use oidc::OidcServer;
pub use tls::TlsFront;
pub use upstream::{Gate, Reply, Upstream};

use std::time::Duration;

/// Returns whether the bytes contain a text. Fast in a debug build, as `windows` is not.
pub fn contains(bytes: &[u8], text: impl AsRef<[u8]>) -> bool {
    memchr::memmem::find(bytes, text.as_ref()).is_some()
}

/// Returns the percentile of the figures, in hundredths. Sorts them.
pub fn percentile(figures: &mut [Duration], hundredths: usize) -> Duration {
    figures.sort();
    figures[figures.len() * hundredths / 100]
}
