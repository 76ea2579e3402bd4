//! Lockouts: after ten forged credentials within five minutes, weir rejects a client's address for fifteen minutes.
//!
//! Forged credentials count: a key that weir never created, or a token with an invalid signature. Expired or revoked
//! credentials are rejected but do not count: a forgotten job with an old key must not lock its office out. A lockout
//! rejects only unauthenticated requests: a key in the cache keeps working, so that an attacker behind the same address
//! or proxy cannot lock out active users.
//!
//! In development mode, this machine is never locked out.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;
use weir_errors::ApiError;
use weir_request::audit::{Actor, AuditEvent};
use weir_request::node::Core;
use weir_storage::cache::{CacheError, Lockout, LockoutPolicy};

use super::client_address::{ClientAddress, bucket};
use super::parts::IdentityParts;

/// Ten forged credentials within five minutes cause a lockout of fifteen minutes.
pub const LOCKOUT: LockoutPolicy = LockoutPolicy {
    failures: NonZeroU32::new(10).expect("not zero"),
    window: Duration::from_secs(5 * 60),
    block: Duration::from_secs(15 * 60),
};

/// Counts a forged credential against its address.
pub(super) async fn count_failure(
    identity: &IdentityParts,
    address: Option<ClientAddress>,
) -> Result<(), CacheError> {
    if identity.is_dev && address.is_some_and(|address| address.is_loopback()) {
        return Ok(());
    }
    let address = bucket(address);
    // This attempt was still checked, but the next one is rejected. Concurrent attempts are rejected, too.
    if identity.cache.count_failure(&address, LOCKOUT).await? == Some(LOCKOUT.block) {
        identity.audit.record(AuditEvent::LockedOut);
    }
    Ok(())
}

/// Returns up to `most` locked-out addresses, the longest remaining lockout first.
pub async fn list(core: &Core, most: usize) -> Result<Vec<Lockout>, ApiError> {
    core.cache.lockouts(most).await.map_err(not_now)
}

/// Ends the lockout of an address. Returns whether there was one. For an IPv6 client, any address of its network works.
pub async fn clear(core: &Core, address: IpAddr, by: &Actor) -> Result<bool, ApiError> {
    let address = ClientAddress::new(address).to_string();
    let cleared = core.cache.clear_lockout(&address).await.map_err(not_now)?;
    if cleared {
        core.audit.record_by(by, AuditEvent::LockoutCleared);
    }
    Ok(cleared)
}

fn not_now(_: CacheError) -> ApiError {
    ApiError::cache_unavailable("weir could not read the lockouts; retry later.")
}
