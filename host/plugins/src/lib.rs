//! Which plugins serve: the components in their slots, and what operators can do about them.
//!
//! What a component is, and how it is checked and run, is the [sandbox](weir_sandbox)'s. Which one serves in which
//! [slot](slots) is in the database, and every node follows it while it runs: operators install, activate, roll back and
//! remove, and a component that fails too often is taken out of service by itself.
//!
//! A slot may serve some accounts with a [canary], which ends or serves all by what its figures say.
//!
//! **Invariant:** an exchange ends on the component that it began with, whatever its slot serves with by then.
//!
//! A slot is for adapters, for tools or for filters, by what was put into it first ([`Kind`]); all else is the same for all.
//!
//! A component from elsewhere carries its publisher's [signature], which is checked against the [publishers](trust) that the
//! configuration knows wherever it is loaded, before anything else is done with it.
//!
//! To change what operators can do to slots, edit [`slots`], with its SQL in `store`; what a guest may use or import,
//! the sandbox.

pub mod bundled;
pub mod canary;
pub mod component;
pub mod counters;
mod error;
pub mod items;
pub mod metrics;
pub mod oversight;
pub mod policy;
pub mod progress;
pub mod settings;
pub mod signature;
pub mod slot_name;
pub mod slots;
mod store;
mod succession;
pub mod trust;

pub use self::component::{Component, FilterComponent, Kind, Plugin, ToolComponent};
pub use self::error::OperationError;
pub use self::slots::{Loader, Plugins};
pub use self::store::Quarantined;
pub use self::succession::Permissions;
