//! Occurrences of events, and counts of equal ones.

use std::collections::HashMap;

use weir_storage::clock::Millis;

use super::actor::Actor;
use super::event::AuditEvent;

/// An event and its actor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Occurrence {
    pub(super) event: AuditEvent,
    pub(super) actor: Option<Actor>,
}

/// Equal events, each with its count.
pub(super) type GatheredEvents = HashMap<Occurrence, EqualEvents>;

/// Rows, in the order in which they are written.
pub(super) type Rows = Vec<(Occurrence, EqualEvents)>;

/// The number of equal events, and their first time.
#[derive(Debug, Clone, Copy)]
pub(super) struct EqualEvents {
    /// The position among all gathered events: they are written in that order.
    pub(super) order: usize,
    /// The time of the first.
    pub(super) at: Millis,
    pub(super) count: i64,
}
