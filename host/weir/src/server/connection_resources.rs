//! The resources of a connection: its entry among its address's connections, its slot, and its client's address.

use std::net::IpAddr;
use std::sync::Arc;

use super::connection_slots::ConnectionSlot;
use super::connections::{ConnectionEntry, ConnectionState};

/// The resources, released after the last request.
pub(super) struct ConnectionResources {
    pub entry: ConnectionEntry,
    pub place: ConnectionSlot,
    /// The client's address, or the address of its proxy.
    pub client: IpAddr,
}

impl ConnectionResources {
    pub(super) fn line(&self) -> &Arc<ConnectionState> {
        self.entry.line()
    }
}
