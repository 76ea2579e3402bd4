//! Plugins: the components in their slots, and the operations on them.
//!
//! The [sandbox](weir_sandbox) loads and runs components. The database says which component serves in which [slot](slots), and
//! every node follows the database. Operators install, activate, roll back and remove components. A component that fails too often
//! goes into quarantine. A [canary] serves a share of a slot's accounts; its figures decide whether it is promoted or ended.
//!
//! The first component of a slot decides the slot's [`PluginKind`]: adapters, tools or filters. The rest is the same for all kinds.
//!
//! A component from outside carries its publisher's [signature]. Every node checks the signature against the configured
//! [publishers](trust) before it does anything else with the component.
//!
//! **Invariant:** an exchange ends on the component that it began with, even if its slot changes meanwhile.
//!
//! To change the operations on slots, edit [`slots`] and its SQL in `store`. To change limits or imports of guests, edit the
//! sandbox.

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

pub use self::component::{Component, FilterComponent, Plugin, PluginKind, ToolComponent};
pub use self::error::OperationError;
pub use self::slots::{Loader, Plugins};
pub use self::store::QuarantineResult;
pub use self::succession::Permissions;
