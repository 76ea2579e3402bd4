//! The SQL of slots: what is installed, what each slot serves with, and every change of it.
//!
//! **Invariant:** a change is one transaction that raises the generation, which it thereby locks, and leaves
//! one event of the generation's number: changes happen one after another, on however many nodes.

mod change;
mod components;
mod counts;
mod events;
mod row;
mod slots;
mod wanted;

pub(super) use self::change::Change;
pub(super) use self::components::{NewPlugin, install, installed, kept, remove, signature};
pub(super) use self::counts::{add_counts, counts};
pub(super) use self::events::events;
pub use self::slots::Quarantined;
pub(super) use self::slots::{Candidate, activate, quarantine, roll_back};
pub(super) use self::wanted::{Wanted, generation, wanted};
