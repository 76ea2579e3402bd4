//! The resources of a connection: its entry among its address's connections, its slot, and its client's address.

use std::net::IpAddr;
use std::sync::Arc;

use super::connections::{Entry, Line};
use super::places::Place;

/// The resources, released after the last request.
pub(super) struct Seat {
    /// The connection's entry.
    pub entry: Entry,
    /// The connection's slot.
    pub place: Place,
    /// The client's address, or the address of its proxy.
    pub client: IpAddr,
}

impl Seat {
    pub(super) fn line(&self) -> &Arc<Line> {
        self.entry.line()
    }
}
