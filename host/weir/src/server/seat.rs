//! What a connection has while it is there: its entry among its address's, its place among all, and whose it is.

use std::net::IpAddr;
use std::sync::Arc;

use super::connections::{Entry, Line};
use super::places::Place;

/// All of it, given up when the last request is over.
pub(super) struct Seat {
    /// Its entry.
    pub entry: Entry,
    /// Its place.
    pub place: Place,
    /// The client's address, or that of the proxy that it came through.
    pub client: IpAddr,
}

impl Seat {
    pub(super) fn line(&self) -> &Arc<Line> {
        self.entry.line()
    }
}
