//! API keys as their users manage them: `/api-keys`, and the limits of a key.
//!
//! [`weir_identity`] checks keys. A new key gets its limits ([`limits`]) before anybody knows it.

pub mod limits;
pub mod routes;

use std::ops::Deref;
use std::sync::Arc;

use weir_catalog::live::LiveCatalog;
use weir_errors::ApiError;
use weir_identity::api_key::RawKey;
use weir_identity::pepper::Peppers;
use weir_identity::{store, store_failed};
use weir_ledger::Ledger;
use weir_request::audit::{Actor, AuditEvent};
use weir_request::content_log::ContentLog;
use weir_request::node::Core;
use weir_storage::clock::Millis;

use self::limits::KeyLimits;

/// The parts of a gateway that the endpoints of keys use. Cheap to clone.
#[derive(Clone)]
pub struct KeyParts {
    /// The stores, the clock and the audit.
    pub core: Core,
    /// The ledger, for budgets.
    pub ledger: Ledger,
    /// The catalog, for the models of a key.
    pub catalog: Arc<LiveCatalog>,
    /// The log of prompts and responses, if the configuration allows one.
    pub content_log: Option<Arc<ContentLog>>,
    pub key_peppers: Peppers,
}

impl Deref for KeyParts {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// Creates a key for a user, with limits. Creates the user if the id is unknown. Returns the expiry, too.
pub async fn create_key(
    core: &Core,
    peppers: &Peppers,
    (user_id, name): (&str, &str),
    limits: &KeyLimits,
    by: &Actor,
) -> Result<(RawKey, Millis), ApiError> {
    let now = core.clock.now();
    let key = store::create_key(&core.database, peppers, user_id, name, false, Some(by), now)
        .await
        .map_err(store_failed)?;
    let expires_at = finish_key(core, (user_id, &key), limits, now, by).await?;
    Ok((key, expires_at))
}

/// Sets the limits of a stored key, and records its creation. Returns the expiry.
async fn finish_key(
    core: &Core,
    (user_id, key): (&str, &RawKey),
    limits: &KeyLimits,
    now: Millis,
    by: &Actor,
) -> Result<Millis, ApiError> {
    let expires_at = limits::limit_new_key(core, (user_id, key.id()), limits, now).await?;
    let created = AuditEvent::KeyCreated {
        user_id: user_id.to_owned(),
        key_id: key.id().to_owned(),
    };
    core.audit.record_by(by, created);
    Ok(expires_at)
}
