//! The parts of a gateway that authenticate callers.

use std::ops::Deref;
use std::path::PathBuf;

use weir_request::cors::Origin;
use weir_request::node::Core;

use super::key_lookups::KeyLookups;
use super::last_used::LastUsed;
use super::node_token::NodeTokens;
use super::pepper::Peppers;
use super::rates::{FailurePolicy, RateLimits};
use super::sign_in::SignInIssuers;
use super::verifiers::Verifiers;

/// The stores, verifiers and settings of authentication.
pub struct IdentityParts {
    /// The stores, the clock and the audit.
    pub core: Core,
    /// Verifiers of web users' and services' tokens.
    pub verifiers: Verifiers,
    /// The tokens with which other nodes call this one.
    pub node_tokens: NodeTokens,
    /// The issuers whose users sign in at the console.
    pub sign_in: SignInIssuers,
    /// The peppers of API keys.
    pub key_peppers: Peppers,
    /// Database lookups of keys.
    pub key_lookups: KeyLookups,
    /// Times of the keys' last uses, not written yet.
    pub last_used: LastUsed,
    /// The rates of addresses and plans.
    pub rate_limits: RateLimits,
    /// The decision about requests if the cache does not respond.
    pub failure_policy: FailurePolicy,
    /// The origins of the web app's pages.
    pub cors_origins: Vec<Origin>,
    /// Whether development mode is on.
    pub is_dev: bool,
    /// Whether development mode's issuer signs in web users.
    pub has_development_users: bool,
    /// The folder with the development key.
    pub data_dir: PathBuf,
}

impl Deref for IdentityParts {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}
