//! Authentication of callers.
//!
//! API keys (in `X-Api-Key` or as a bearer token) authenticate callers. Web users need two tokens: an identity token as
//! bearer and an attestation token in `X-Identity-AppCheck`. weir verifies both on every request. Handlers take a
//! [`Caller`]; a [`WebCaller`] excludes keys, and a [`service::ServiceCaller`] accepts only other services. A [`gate`]
//! protects the web app's endpoints that use secrets.
//!
//! weir first queries the cache, in one round trip, for the key's record, the address's lockout and rate, and the
//! user's rate. If the node has read the record from Redis within 15 s, weir only counts the request in the rates of
//! the address and the user. If the cache does not respond, weir rejects the request (`failure_policy`).
//!
//! weir reads keys that are not in the cache from the database, once for all concurrent requests ([`key_lookups`]).
//!
//! A key that is used every few minutes stays in the cache, because weir renews its record after half of the lifetime.
//! Therefore, a [lockout] of its address does not affect it.
//!
//! **Invariant:** weir shows a raw key once, at creation, and never stores it; it stores the key's HMAC under a pepper
//! that the database does not hold. **Invariant:** a revoked key stays revoked: its tombstone is in the cache before
//! the database changes, and readers never overwrite a tombstone. **Invariant:** an error never says which part of the
//! credentials failed.
//!
//! People sign in to the console at an issuer ([`sign_in`]), whose [`groups`] can grant them roles.

pub mod admin;
pub mod api_key;
mod caller;
pub mod client_address;
pub mod console_link;
mod credentials;
pub mod dev_issuer;
pub mod directory;
pub mod directory_token;
mod ended_sessions;
pub mod endpoints;
mod errors;
pub mod filter_options;
pub mod gate;
pub mod groups;
pub mod issuer_logout;
pub mod jwks;
pub mod jwt;
mod key_changes;
pub mod key_lookups;
pub mod key_records;
pub mod last_used;
pub mod limits;
pub mod lockout;
pub mod managed_limits;
pub mod members;
pub mod model_grant;
pub mod node_token;
pub mod part_rates;
mod parts;
pub mod pepper;
pub mod principal;
pub mod rates;
pub mod roles;
pub mod scim;
pub mod scope;
pub mod service;
pub mod service_token;
pub mod settings;
pub mod sign_in;
pub mod store;
pub mod stored_plan;
pub mod users;
pub mod verifiers;
pub mod web_session;

pub use self::caller::{ACCOUNT, Caller, Proof, RateSlot, WebCaller};
pub use self::credentials::may_be_service;
pub use self::errors::{no_such_key, store_failed};
pub use self::key_changes::{
    DEVELOPMENT_USER, development_key, own_development_key, replace_key, revoke, revoke_of_anybody,
};
pub use self::parts::IdentityParts;
pub use self::service::service_among_users;
