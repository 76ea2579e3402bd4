//! The SQL of slots: what is installed, what each slot serves with, and every change of it.
//!
//! **Invariant:** a change is one transaction that raises the generation, which it thereby locks, and leaves
//! one event of the generation's number: changes happen one after another, on however many nodes. One that ends a canary, too,
//! raises it once for each. A change of a slot's policy is an event of the audit's instead.

mod canary;
mod change;
mod components;
mod counts;
mod events;
mod quarantines;
mod questions;
mod row;
mod slots;
mod wanted;

pub(super) use self::canary::{add_samples, end_canary, promote_canary, samples, start_canary};
pub(super) use self::change::{Candidate, Change};
pub(super) use self::components::{NewPlugin, install, installed, kept, remove, signature};
pub(super) use self::counts::{add_counts, counts};
pub(super) use self::events::{EventRow, events};
pub(super) use self::questions::{
    LoadAnswer, Question, answer, answers, ask, take_back, unanswered,
};
pub(super) use self::row::CanaryRow;
pub use self::slots::Quarantined;
pub(super) use self::slots::{activate, quarantine, roll_back, set_policy};
pub(super) use self::wanted::{Moment, StoreState, Wanted, state, wanted};
