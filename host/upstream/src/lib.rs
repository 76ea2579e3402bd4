//! Upstreams: the model providers, and the only way to them.
//!
//! - [`client`]: HTTP with pooled [`connections`].
//! - [`destination`]: the URL, the credential and the body of a request that an adapter has written.
//! - [`redact`]: removes credentials from responses.
//! - [`breaker`]: skips an upstream that fails.
//! - [`response`], [`sequence`], [`media`] and [`usage`]: the headers that an adapter sees, and the checks of its events.
//! - [`filter_rules`]: the checks of a filter's verdict and events.
//! - [`error`]: the reasons for a failed attempt.
//! - [`recorded`]: the format of recorded exchanges.
//!
//! **Invariant:** a request goes to the base URL that the operator has configured; an adapter cannot lead it elsewhere.
//! **Invariant:** an adapter never sees a credential.

pub mod breaker;
pub mod client;
pub mod connections;
pub mod destination;
pub mod error;
pub mod filter_rules;
pub mod media;
mod pages;
pub mod recorded;
pub mod redact;
pub mod response;
pub mod sequence;
pub mod usage;

use std::num::NonZeroU64;
use std::time::Duration;

pub use crate::destination::BaseUrl;
use weir_sandbox::adapter::bindings::adapter::Setting;
use weir_storage::secrets::Secret;

/// Somebody who answers requests, e.g. a model provider.
#[derive(Debug)]
pub struct Upstream {
    /// Its name under `providers`.
    pub name: String,
    /// The slot of the adapter that speaks its dialect.
    pub adapter: String,
    /// Where it is; none for an adapter that answers by itself.
    pub base: Option<BaseUrl>,
    /// What proves to it who calls.
    pub credential: Option<Secret>,
    /// Settings for the adapter.
    pub options: Vec<Setting>,
    /// How long it may take.
    pub timeouts: UpstreamTimeouts,
}

/// How long an upstream may take.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamTimeouts {
    /// From the request to the head of a streamed answer.
    pub first_byte: Duration,
    /// From the request to the first of a streamed answer, where another upstream could be asked instead.
    pub first_token: Duration,
    /// Between two pieces of an answer.
    pub idle: Duration,
}

impl UpstreamTimeouts {
    /// All in milliseconds.
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
