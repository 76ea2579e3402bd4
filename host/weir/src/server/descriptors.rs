//! The file descriptors that connections take.

use std::num::NonZeroU32;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_request::limits::connections::ConnectionLimits;

use super::connection_slots::LAST_PLACES;

/// Descriptors for other purposes: the database's files or connections, the log, listeners, compilers.
const OTHERS: u64 = 256;

/// The minimum of connections for a useful gateway.
const FEWEST: u64 = 16;

/// Raises the limit of open files for the connections of all listeners and for calls to upstreams, or else lowers the
/// limit of connections.
pub fn provide(limits: &mut ConnectionLimits, listeners: u64, upstream_calls: u64) {
    let others = upstream_calls + LAST_PLACES as u64 * listeners + OTHERS;
    let wanted = u64::from(limits.connections.get()) * listeners + others;
    let available = raise(wanted);
    if available >= wanted {
        return;
    }
    let connections = (available.saturating_sub(others) / listeners).max(FEWEST);
    tracing::warn!(
        available,
        wanted,
        connections,
        "too few file descriptors for `limits.connections`: lowered; raise the limit of open files (`ulimit -n`, \
         `LimitNOFILE=` of a systemd service)"
    );
    let connections = u32::try_from(connections).unwrap_or(u32::MAX);
    limits.connections = NonZeroU32::new(connections).unwrap_or(limits.connections);
}

/// Raises the limit of open files as far as the process may. Returns the limit.
pub fn raise(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let now = current.unwrap_or(u64::MAX);
    let possible = wanted.min(maximum.unwrap_or(u64::MAX));
    if possible <= now {
        return now;
    }
    let raised = Rlimit {
        current: Some(possible),
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => possible,
        Err(_) => now,
    }
}
