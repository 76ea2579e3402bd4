//! One-time links to the console, for administrators without an issuer.
//!
//! `weir console` requests a link at the admin socket. The link holds a code of 32 random bytes, in the fragment of its
//! URL, which browsers do not send and proxies do not log. The page behind it posts the code, and the code begins an
//! administrator's session. Stores hold only the SHA-256 of the code, so that any node with shared stores can redeem
//! the link, and no reader of a store can.
//!
//! **Invariant:** a code begins one session, within [`LIFETIME`], on any node. **Invariant:** no log, audit event or
//! store holds a code.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use weir_errors::ApiError;
use weir_request::audit::{Actor, AuditEvent};
use weir_request::node::Core;
use weir_storage::clock::Millis;
use weir_storage::expiring::ExpiringValues;
use weir_storage::ids::Hex;
use weir_storage::secrets::{Secret, random_bytes};

use super::errors::sessions_failed;

/// The lifetime of a link.
pub const LIFETIME: Duration = Duration::from_secs(10 * 60);

/// The entry of a used code.
const USED: &[u8] = b"";

/// The issuer of administrators who sign in by a link, in the records of users. No token has this issuer.
pub(super) const ISSUER: &str = "urn:weir:admin-socket";

/// Creates a code for an administrator at the admin socket. Returns the code with its expiry.
pub async fn create(core: &Core, by: &Actor) -> Result<(Secret, Millis), ApiError> {
    let code = URL_SAFE_NO_PAD.encode(random_bytes::<32>());
    let now = core.clock.now();
    let expires_at = expiry(now);
    let (links, name, by_whom) = (links(core), name(&code), by.as_str().as_bytes());
    let kept = links.replace(&name, None, by_whom, expires_at, now);
    if !kept.await.map_err(sessions_failed)? {
        // Two codes with the same digest: practically impossible.
        return Err(ApiError::internal());
    }
    core.audit.record_by(by, AuditEvent::ConsoleLinkCreated);
    Ok((Secret::new(code), expires_at))
}

/// Redeems a code. Returns its creator; `None` if the code is unknown, used or expired.
pub(super) async fn redeem(core: &Core, code: &str) -> Result<Option<Actor>, ApiError> {
    let (links, name, now) = (links(core), name(code), core.clock.now());
    let Some(found) = links.find(&name, now).await.map_err(sessions_failed)? else {
        return Ok(None);
    };
    let uid = std::str::from_utf8(&found.value).ok();
    let uid = uid.and_then(|actor| actor.strip_prefix("local:")?.parse().ok());
    let Some(uid) = uid else {
        return Ok(None);
    };
    // Only one of two concurrent requests can replace the entry.
    let until = expiry(now);
    let used = links.replace(&name, Some(found.version), USED, until, now);
    let is_first = used.await.map_err(sessions_failed)?;
    Ok(is_first.then(|| Actor::local(uid)))
}

fn expiry(now: Millis) -> Millis {
    Millis(now.0 + LIFETIME.as_millis() as i64)
}

fn links(core: &Core) -> ExpiringValues {
    ExpiringValues::new(core.database.clone(), core.cache.clone())
}

fn name(code: &str) -> String {
    format!("console-link:{}", Hex(&Sha256::digest(code)))
}
