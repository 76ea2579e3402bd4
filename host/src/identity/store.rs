//! Users and API keys in the database.

use sqlx::{AnyPool, Row};

use super::api_key::{LIFETIME_DAYS, PEPPER_VERSION, RawKey, StoredKey};
use crate::clock::Millis;
use crate::ids;
use crate::secrets::Key;
use crate::storage::Database;

/// The record of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its id.
    pub id: String,
    /// What it pays for.
    pub plan: String,
    /// Since when it is an administrator, if it is one.
    pub admin_since: Option<Millis>,
    /// When it was first seen.
    pub created_at: Millis,
}

/// The user whom an issuer's tokens name so; made at first sight. Many callers at once get the same one.
pub async fn find_or_create_web_user(
    database: &Database,
    issuer: &str,
    subject: &str,
    now: Millis,
) -> sqlx::Result<User> {
    if let Some(user) = find_web_user(database.reader(), issuer, subject).await? {
        return Ok(user);
    }
    sqlx::query(
        "INSERT INTO users (id, issuer, subject, created_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (issuer, subject) DO NOTHING",
    )
    .bind(ids::user_id())
    .bind(issuer)
    .bind(subject)
    .bind(now.0)
    .execute(database.writer())
    .await?;
    // Not in the same statement, nor from a reader: whoever lost the race sees the winner's row only
    // from here on.
    find_web_user(database.writer(), issuer, subject)
        .await?
        .ok_or(sqlx::Error::RowNotFound)
}

async fn find_web_user(pool: &AnyPool, issuer: &str, subject: &str) -> sqlx::Result<Option<User>> {
    let row = sqlx::query(
        "SELECT id, plan, admin_since, created_at FROM users WHERE issuer = $1 AND subject = $2",
    )
    .bind(issuer)
    .bind(subject)
    .fetch_optional(pool)
    .await?;
    row.map(|row| {
        Ok(User {
            id: row.try_get("id")?,
            plan: row.try_get("plan")?,
            admin_since: row.try_get::<Option<i64>, _>("admin_since")?.map(Millis),
            created_at: Millis(row.try_get("created_at")?),
        })
    })
    .transpose()
}

/// Makes a user an administrator, and says whether there is such a user.
pub async fn grant_admin(database: &Database, user_id: &str, now: Millis) -> sqlx::Result<bool> {
    let updated =
        sqlx::query("UPDATE users SET admin_since = COALESCE(admin_since, $1) WHERE id = $2")
            .bind(now.0)
            .bind(user_id)
            .execute(database.writer())
            .await?;
    Ok(updated.rows_affected() > 0)
}

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
    let mut transaction = database.writer().begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING")
        .bind(user_id)
        .bind(now.0)
        .execute(&mut *transaction)
        .await?;
    if replace {
        sqlx::query(
            "UPDATE api_keys SET disabled_at = $1 \
             WHERE user_id = $2 AND name = $3 AND disabled_at IS NULL",
        )
        .bind(now.0)
        .bind(user_id)
        .bind(name)
        .execute(&mut *transaction)
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
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(key)
}
