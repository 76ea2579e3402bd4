//! The egress guard: the one way by which what a stranger asks for leaves this machine.
//!
//! A URL that a model or a plugin wrote is hostile. A request goes out only if every stage lets it: what the URL says,
//! what the [`Policy`] lists, the caller's headers, every address of the name, and then again for each redirect.
//! `README.md` beside this crate has the stages in their order.
//!
//! - [`Guard::fetch`] takes a [`Request`] to its [`Response`] or a [`Refusal`]; `guard.rs` has the order of the stages.
//! - `target.rs`, `names.rs`, [`addresses`]: what is read of a URL, which names and which addresses are public.
//! - [`Policy`]: what the operator allows; [`Credential`]: where one may be sent.
//! - [`webhook`]: how a webhook is signed; [`cases`]: what becomes of which URL, to try a guard without a network.
//!
//! **Architecture invariant:** nothing here knows a feature of weir's: no tool, no agent, no account. No other crate opens
//! a connection to an address that a stranger chose.

pub mod addresses;
pub mod cases;
mod guard;
mod names;
mod network;
mod origin;
mod outside;
mod policy;
mod refusal;
mod request;
mod resolver;
mod target;
pub mod webhook;

pub use self::guard::{Guard, Settings};
pub use self::origin::UrlOrigin;
pub use self::policy::{Exemption, HostPattern, Policy};
pub use self::refusal::{Kind, Refusal, Rule, Stage};
pub use self::request::{Credential, Request, Response};
pub use self::resolver::Resolver;

/// Redirects that are followed at most.
pub const MAX_REDIRECTS: usize = 3;

/// Bytes of the longest URL.
pub const MAX_URL_BYTES: usize = 8 << 10;
