//! The egress guard: the only way out for requests of models and plugins from this machine.
//!
//! URLs that a model or a plugin wrote are hostile. A request must pass every stage: the URL, the [`EgressPolicy`], the
//! caller's headers, every address of the name, and again all stages for each redirect. `README.md` beside this crate
//! lists the stages in their order.
//!
//! - [`Guard::fetch`] takes a [`EgressRequest`] and returns a [`EgressResponse`] or a [`EgressRefusal`]; `guard.rs` has the order of the
//!   stages.
//! - `target.rs`, `names.rs`, [`addresses`]: URL parsing, and rules for public names and addresses.
//! - [`EgressPolicy`]: the operator's rules; [`Credential`]: a secret and its allowed targets.
//! - [`webhook`]: signatures of webhooks; [`cases`]: decisions for example URLs, without a network.
//!
//! **Architecture invariant:** this crate knows no feature of weir: no tool, no agent, no account. No other crate
//! connects to addresses that a model or a plugin chose.

pub mod addresses;
pub mod cases;
mod guard;
mod names;
mod network;
mod origin;
mod policy;
mod refusal;
mod request;
mod resolver;
mod target;
mod transport;
pub mod webhook;

pub use self::guard::{Guard, GuardSettings};
pub use self::origin::UrlOrigin;
pub use self::policy::{EgressPolicy, Exemption, HostPattern};
pub use self::refusal::{EgressRefusal, EgressStage, RefusalKind, Rule};
pub use self::request::{Credential, EgressRequest, EgressResponse};
pub use self::resolver::Resolver;

/// The maximum number of followed redirects.
pub const MAX_REDIRECTS: usize = 3;

/// The maximum length of a URL, in bytes.
pub const MAX_URL_BYTES: usize = 8 << 10;
