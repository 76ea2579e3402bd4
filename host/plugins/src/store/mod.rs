//! The SQL of slots: installed components, each slot's wanted component, and every change of it.
//!
//! **Invariant:** a change is one transaction that raises and thereby locks the generation, and leaves one event of
//! the generation's number: changes are serial, regardless of the number of nodes. A change that also ends a canary
//! raises the generation once for each event. A change of a slot's policy is an event of the audit log instead.

mod canary;
mod change;
mod components;
mod counts;
mod desired_slots;
mod events;
mod quarantines;
mod questions;
mod row;
mod slots;

pub(super) use self::canary::{add_samples, end_canary, promote_canary, samples, start_canary};
pub(super) use self::change::{ActivationCandidate, SlotChange};
pub(super) use self::components::{NewPlugin, install, installed, kept, remove, signature};
pub(super) use self::counts::{add_counts, counts};
pub(super) use self::desired_slots::{DesiredSlots, ReadOrder, StoreState, state, wanted};
pub(super) use self::events::{EventRow, events};
pub(super) use self::questions::{
    LoadAnswer, Question, answer, answers, ask, take_back, unanswered,
};
pub(super) use self::row::CanaryRow;
pub use self::slots::QuarantineResult;
pub(super) use self::slots::{activate, quarantine, roll_back, set_policy};
