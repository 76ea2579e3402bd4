//! Records of keys in the cache: how long they live, and how a change of a user's plan drops them.

use std::time::Duration;

use weir_storage::Cache;
use weir_storage::cache::{CacheError, Tombstone};

/// How long a verified key is believed without asking the database, and how long a tombstone stands.
pub(super) const KEY_TTL: Duration = Duration::from_secs(15 * 60);

/// Drops the records of a user's keys, which have the plan. The caller changes the plan afterwards: until all old records have
/// expired, nodes ask the database.
pub async fn drop_plan(cache: &Cache, user_id: &str) -> Result<(), CacheError> {
    cache.bury(Tombstone::User(user_id), KEY_TTL).await
}
