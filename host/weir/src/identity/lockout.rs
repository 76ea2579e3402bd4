//! Lockouts: ten failed proofs within five minutes shut a client's address out for fifteen.
//!
//! What counts is a proof that is nobody's: a key that was never made, a token that its issuer did not sign. What is genuine
//! and has merely expired or was revoked is refused and does not count: a forgotten job with an old key must not
//! shut its office out. And a lockout stops only who is not proven yet: a key that the cache knows goes on working, so
//! that a stranger behind the same address or proxy shuts nobody out who is at work.
//!
//! In development mode this machine is never shut out.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;
use weir_errors::ApiError;

use super::client_address::ClientAddress;
use crate::app::App;
use crate::audit::{Actor, AuditEvent};
use crate::node::Core;
use weir_storage::cache::{CacheError, Lockout, LockoutPolicy};

/// Ten failed proofs within five minutes shut an address out for fifteen.
pub const LOCKOUT: LockoutPolicy = LockoutPolicy {
    failures: NonZeroU32::new(10).expect("not zero"),
    window: Duration::from_secs(5 * 60),
    block: Duration::from_secs(15 * 60),
};

/// Counts a failed proof against its address.
pub(super) async fn count_failure(
    app: &App,
    address: Option<ClientAddress>,
) -> Result<(), CacheError> {
    if app.config.is_dev() && address.is_some_and(|address| address.is_loopback()) {
        return Ok(());
    }
    let address = super::bucket(address);
    // This attempt was judged; the next one will not be. Others that were under way find it shut.
    if app.cache.count_failure(&address, LOCKOUT).await? == Some(LOCKOUT.block) {
        app.audit.record(AuditEvent::LockedOut);
    }
    Ok(())
}

/// The addresses that are shut out, those for longest yet first; so many at most.
pub async fn list(core: &Core, most: usize) -> Result<Vec<Lockout>, ApiError> {
    core.cache.lockouts(most).await.map_err(not_now)
}

/// Lets an address in again. Returns whether it was shut out. Of an IPv6 client, any address will do.
pub async fn clear(core: &Core, address: IpAddr, by: &Actor) -> Result<bool, ApiError> {
    let address = ClientAddress::new(address).to_string();
    let cleared = core.cache.clear_lockout(&address).await.map_err(not_now)?;
    if cleared {
        core.audit.record_by(by, AuditEvent::LockoutCleared);
    }
    Ok(cleared)
}

fn not_now(_: CacheError) -> ApiError {
    ApiError::cache_unavailable("The lockouts are not known; try again.")
}
