//! Upstreams: the model providers, and the only way to them.
//!
//! - [`client`]: HTTP with pooled [`connections`].
//! - [`destination`]: the URL, the credential and the body of a request that an adapter has written.
//! - [`credential`]: fixed credentials, and those that weir obtains and renews.
//! - [`redact`]: removes credentials from responses.
//! - [`breaker`]: skips an upstream that fails.
//! - [`response`], [`sequence`], [`media`] and [`usage`]: the headers that an adapter sees, and the checks of its events.
//! - [`filter_rules`]: the checks of a filter's verdict and events.
//! - [`error`]: the reasons for a failed attempt.
//! - [`recorded`]: the format of recorded exchanges.
//!
//! **Invariant:** a request goes to the base URL that the operator has configured; an adapter cannot lead it elsewhere.
//! **Invariant:** an adapter never sees a credential.

pub mod audio_length;
pub mod breaker;
pub mod client;
pub mod connections;
pub mod credential;
pub mod destination;
pub mod error;
pub mod file_reader;
pub mod filter_rules;
mod image_size;
pub mod image_tokens;
mod json_text;
pub mod media;
mod pages;
mod pdf_text;
mod percent;
pub mod recorded;
pub mod redact;
pub mod response;
pub mod sequence;
pub mod usage;

use std::num::NonZeroU64;
use std::time::Duration;

use weir_sandbox::adapter::bindings::adapter::{CredentialSlot, Description};

use crate::credential::Credential;
pub use crate::destination::BaseUrl;

/// A server of requests, e.g. a model provider.
#[derive(Debug)]
pub struct Upstream {
    /// The name under `providers`.
    pub name: String,
    /// The slot of the adapter that speaks its dialect.
    pub adapter: String,
    /// The base URL; `None` for an adapter that responds by itself.
    pub base: Option<BaseUrl>,
    /// The credential that authenticates weir to it.
    pub credential: Option<Credential>,
    /// The place of the credential in requests, instead of the adapter's.
    pub slot: Option<CredentialSlot>,
}

impl Upstream {
    /// Returns the place of its credential in requests of an adapter with this description.
    pub fn slot<'a>(&'a self, description: &'a Description) -> &'a CredentialSlot {
        self.slot.as_ref().unwrap_or(&description.credential)
    }
}

/// Time limits of an upstream's responses for one model.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamTimeouts {
    /// From the request to the headers of a streamed response. If there is an upstream to fall back to, also to the first
    /// byte of any other response's content.
    pub first_byte: Duration,
    /// From the request to the first token of a streamed response, if there is an upstream to fall back to.
    pub first_token: Duration,
    /// Between two pieces of a response.
    pub idle: Duration,
}

impl UpstreamTimeouts {
    /// Creates the limits from milliseconds.
    pub fn from_millis(
        first_byte_ms: NonZeroU64,
        first_token_ms: NonZeroU64,
        idle_ms: NonZeroU64,
    ) -> Self {
        let duration = |ms: NonZeroU64| Duration::from_millis(ms.get());
        Self {
            first_byte: duration(first_byte_ms),
            first_token: duration(first_token_ms),
            idle: duration(idle_ms),
        }
    }
}
