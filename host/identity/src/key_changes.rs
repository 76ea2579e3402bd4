//! Registration and revocation of keys, on every node at once.

use std::path::Path;

use weir_errors::ApiError;
use weir_request::audit::{Actor, AuditEvent};
use weir_request::content_log;
use weir_request::node::Core;
use weir_storage::Database;
use weir_storage::cache::Tombstone;
use weir_storage::database::Timeouts;
use weir_storage::secrets::SecretKey;

use super::api_key::RawKey;
use super::errors::{no_such_key, store_failed};
use super::key_records::KEY_TTL;
use super::parts::IdentityParts;
use super::{directory, store};

/// The user of the key that development mode prints.
pub const DEVELOPMENT_USER: &str = "dev";

/// The file in the data folder with the secret of development mode's API key.
const DEVELOPMENT_KEY: &str = "keys/development-api-key";

/// Revokes a user's key; this node rejects it immediately and all nodes within a second, even if it is cached. weir deletes the
/// prompts and responses that the key's user chose to store.
pub async fn revoke(core: &Core, user_id: &str, key_id: &str, by: &Actor) -> Result<(), ApiError> {
    let exists = RawKey::is_id(key_id)
        && store::has_key(&core.database, user_id, key_id)
            .await
            .map_err(store_failed)?;
    if !exists {
        return Err(no_such_key());
    }
    // The tombstone comes first, so that a node that reads the key before the database changes cannot cache it again.
    core.cache
        .bury(Tombstone::Record(key_id), KEY_TTL)
        .await
        .map_err(|_| ApiError::cache_unavailable("weir could not revoke the key; retry later."))?;
    store::disable_key(&core.database, key_id, core.clock.now())
        .await
        .map_err(store_failed)?;
    let revoked = AuditEvent::KeyRevoked {
        user_id: user_id.to_owned(),
        key_id: key_id.to_owned(),
    };
    core.audit.record_by(by, revoked);
    content_log::store::delete_of_key(&core.database, key_id)
        .await
        .map_err(store_failed)
}

/// Revokes a key without naming its user.
pub async fn revoke_of_anybody(core: &Core, key_id: &str, by: &Actor) -> Result<(), ApiError> {
    let owner = directory::find_owner(&core.database, key_id)
        .await
        .map_err(store_failed)?;
    let owner = owner.ok_or_else(no_such_key)?;
    revoke(core, &owner, key_id, by).await
}

/// Registers a key for a user under a name, and creates the user if the id is unknown; revokes the user's other keys with
/// this name.
pub async fn replace_key(
    identity: &IdentityParts,
    database: &Database,
    (user_id, name): (&str, &str),
    key: &RawKey,
) -> anyhow::Result<()> {
    let event = |key_id: &str| (user_id.to_owned(), key_id.to_owned());
    for key_id in store::active_keys(database, user_id, name).await? {
        let buried = Tombstone::Record(&key_id);
        identity.cache.bury(buried, KEY_TTL).await?;
        let (user_id, key_id) = event(&key_id);
        identity
            .audit
            .record(AuditEvent::KeyRevoked { user_id, key_id });
    }
    let (peppers, now) = (&identity.key_peppers, identity.clock.now());
    let owner = (user_id, name);
    store::keep_key(database, peppers, key, owner, true, None, now).await?;
    let (user_id, key_id) = event(key.id());
    identity
        .audit
        .record(AuditEvent::KeyCreated { user_id, key_id });
    Ok(())
}

/// Returns the key that development mode prints: always the same in one data folder, so that running clients keep
/// working. If that key was revoked, a new one replaces it.
pub async fn development_key(identity: &IdentityParts, user_id: &str) -> anyhow::Result<RawKey> {
    let folder = &identity.data_dir;
    // No request waits for it, but the person at a machine that still compiles.
    let database = &identity.database.with_timeouts(Timeouts::patient());
    let (peppers, now) = (&identity.key_peppers, identity.clock.now());
    let mut key = own_development_key(folder)?;
    match store::find_key(database, key.id()).await? {
        Some(stored) if stored.disabled_at.is_none() => {
            store::renew_key(database, peppers, &key, now).await?;
            return Ok(key);
        }
        Some(_) => {
            std::fs::remove_file(folder.join(DEVELOPMENT_KEY))?;
            key = own_development_key(folder)?;
        }
        None => {}
    }
    replace_key(identity, database, (user_id, "development"), &key).await?;
    Ok(key)
}

/// Reads that key from its file, which is created on first use.
pub fn own_development_key(data_dir: &Path) -> anyhow::Result<RawKey> {
    let key = SecretKey::load_or_create(&data_dir.join(DEVELOPMENT_KEY))?;
    Ok(RawKey::derived(&key))
}
