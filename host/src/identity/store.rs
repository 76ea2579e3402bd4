//! Users and API keys in the database.

use sqlx::Row;

use super::api_key::{LIFETIME_DAYS, PEPPER_VERSION, RawKey, StoredKey};
use crate::clock::Millis;
use crate::secrets::Key;
use crate::storage::Database;

/// The record of a key.
pub async fn find_key(database: &Database, id: &str) -> sqlx::Result<Option<StoredKey>> {
    let row = sqlx::query(
        "SELECT user_id, hash, pepper_version, expires_at, disabled_at FROM api_keys WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(database.reader())
    .await?;
    row.map(|row| {
        Ok(StoredKey {
            user_id: row.try_get("user_id")?,
            hash: row.try_get("hash")?,
            pepper_version: row.try_get("pepper_version")?,
            expires_at: Millis(row.try_get("expires_at")?),
            disabled_at: row.try_get::<Option<i64>, _>("disabled_at")?.map(Millis),
        })
    })
    .transpose()
}

/// Makes a key for a user, and the user if there is none of that id.
///
/// With `replace`, the user's keys of the same name are revoked in the same transaction.
pub async fn create_key(
    database: &Database,
    pepper: &Key,
    user_id: &str,
    name: &str,
    replace: bool,
    now: Millis,
) -> sqlx::Result<RawKey> {
    let key = RawKey::generate();
    let mut transaction = database.begin().await?;
    sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING")
        .bind(user_id)
        .bind(now.0)
        .execute(&mut transaction)
        .await?;
    if replace {
        sqlx::query(
            "UPDATE api_keys SET disabled_at = $1 \
             WHERE user_id = $2 AND name = $3 AND disabled_at IS NULL",
        )
        .bind(now.0)
        .bind(user_id)
        .bind(name)
        .execute(&mut transaction)
        .await?;
    }
    sqlx::query(
        "INSERT INTO api_keys (id, user_id, name, prefix, hash, pepper_version, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(key.id())
    .bind(user_id)
    .bind(name)
    .bind(key.prefix())
    .bind(key.hash(pepper).to_vec())
    .bind(PEPPER_VERSION)
    .bind(now.0)
    .bind(now.plus_days(LIFETIME_DAYS).0)
    .execute(&mut transaction)
    .await?;
    transaction.commit().await?;
    Ok(key)
}
