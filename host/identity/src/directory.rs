//! Lists of users and keys for operators.
//!
//! Lists are in index order, and each page starts after the last item of the previous page: concurrent changes cause
//! neither duplicates nor gaps.

use std::collections::BTreeMap;

use sqlx::Row;
use sqlx::any::AnyRow;
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::filter_options::FilterOptions;
use super::store::{KeyItem, PARTS_OF_KEY, read_item};

/// A user.
#[derive(Debug, Clone)]
pub struct UserRecord {
    /// The user's id.
    pub id: String,
    /// `person`, `organisation` or `service`.
    pub kind: String,
    /// Display name, if there is one.
    pub name: Option<String>,
    /// E-mail address, verified by the issuer.
    pub email: Option<String>,
    /// The token issuer of the user; `None` for users with API keys only.
    pub issuer: Option<String>,
    /// The issuer's name for the user; see `issuer`.
    pub subject: Option<String>,
    /// The plan's name.
    pub plan: String,
    /// The options of the account for filters.
    pub filter_options: FilterOptions,
    /// The start of the admin role; `None` for other users.
    pub admin_since: Option<Millis>,
    /// The time at which the user was disabled; `None` if enabled.
    pub disabled_at: Option<Millis>,
    /// The time of the user's erasure; `None` for other users.
    pub deleted_at: Option<Millis>,
    /// The time of the user's first request or creation.
    pub created_at: Millis,
}

/// A filter of users; `None` in a field matches all.
#[derive(Debug, Clone, Default)]
pub struct UserFilter {
    /// The issuer's name for the user.
    pub subject: Option<String>,
    /// The plan's name.
    pub plan: Option<String>,
    /// Whether the user is an administrator.
    pub admin: Option<bool>,
    /// Whether the user is disabled.
    pub disabled: Option<bool>,
    /// The last user of the previous page.
    pub after: Option<String>,
}

/// A filter of keys; `None` in a field matches all.
#[derive(Debug, Clone, Default)]
pub struct KeyFilter {
    /// The owner's id.
    pub user_id: Option<String>,
    /// Whether the key is active.
    pub active: Option<bool>,
    /// The last key of the previous page.
    pub after: Option<String>,
}

const USER: &str = "SELECT id, kind, name, email, issuer, subject, plan, filter_options, admin_since, \
    NULLIF(disabled_at, 0) AS disabled_at, deleted_at, created_at FROM users";

/// Returns the matching users by id, up to a limit.
pub async fn list_users(
    database: &Database,
    filter: &UserFilter,
    limit: u32,
) -> sqlx::Result<Vec<UserRecord>> {
    let mut snapshot = database.snapshot().await?;
    // PostgreSQL uses no index for a condition with an optional parameter. The parameters are bound in any case.
    let sql = format!(
        "{USER} WHERE id > $1 AND {} AND {} AND {} AND {} ORDER BY id LIMIT $4",
        match filter.subject {
            Some(_) => "subject = $2",
            None => "CAST($2 AS TEXT) IS NULL",
        },
        match filter.plan {
            Some(_) => "plan = $3",
            None => "CAST($3 AS TEXT) IS NULL",
        },
        match filter.admin {
            Some(true) => "admin_since IS NOT NULL",
            Some(false) => "admin_since IS NULL",
            None => "TRUE",
        },
        match filter.disabled {
            Some(true) => "(disabled_at IS NOT NULL AND disabled_at <> 0)",
            Some(false) => "NULLIF(disabled_at, 0) IS NULL",
            None => "TRUE",
        }
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(filter.after.as_deref().unwrap_or_default())
        .bind(filter.subject.as_deref())
        .bind(filter.plan.as_deref())
        .bind(i64::from(limit))
        .fetch_all(&mut *snapshot)
        .await?;
    rows.iter().map(read_user).collect()
}

/// Returns the user with an id.
pub async fn find_user(database: &Database, user_id: &str) -> sqlx::Result<Option<UserRecord>> {
    let sql = format!("{USER} WHERE id = $1");
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(user_id)
        .fetch_optional(database.reader())
        .await?;
    row.as_ref().map(read_user).transpose()
}

fn read_user(row: &AnyRow) -> sqlx::Result<UserRecord> {
    let time = |column| row.try_get::<Option<i64>, _>(column);
    Ok(UserRecord {
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        name: row.try_get("name")?,
        email: row.try_get("email")?,
        issuer: row.try_get("issuer")?,
        subject: row.try_get("subject")?,
        plan: row.try_get("plan")?,
        filter_options: FilterOptions::read(row.try_get("filter_options")?)?,
        admin_since: time("admin_since")?.map(Millis),
        disabled_at: time("disabled_at")?.map(Millis),
        deleted_at: time("deleted_at")?.map(Millis),
        created_at: Millis(row.try_get("created_at")?),
    })
}

/// Returns the matching keys with their users' ids, by user and then by age, up to a limit.
pub async fn list_keys(
    database: &Database,
    filter: &KeyFilter,
    limit: u32,
    now: Millis,
) -> sqlx::Result<Vec<(String, KeyItem)>> {
    let mut snapshot = database.snapshot().await?;
    // PostgreSQL uses the index for a comparison with values, but not with a subquery.
    let place = match filter.after.as_deref() {
        None => (String::new(), 0_i64, String::new()),
        Some(after) => {
            let text = "SELECT user_id, created_at, id FROM api_keys WHERE id = $1";
            let place = sqlx::query_as(text).bind(after);
            match place.fetch_optional(&mut *snapshot).await? {
                Some(place) => place,
                None => return Ok(Vec::new()),
            }
        }
    };
    // PostgreSQL uses no index for a condition with an optional parameter. The parameters are bound in any case.
    let sql = format!(
        "SELECT id, user_id, name, prefix, created_at, last_used_at, expires_at, disabled_at, models, filter_options, data_limits, \
         holder_id, project_id, {PARTS_OF_KEY} FROM api_keys \
         WHERE {} AND {} AND (user_id, created_at, id) > ($3, $4, $5) ORDER BY user_id, created_at, id LIMIT $6",
        match filter.user_id {
            Some(_) => "user_id = $1",
            None => "CAST($1 AS TEXT) IS NULL",
        },
        match filter.active {
            Some(true) => "disabled_at IS NULL AND expires_at > $2",
            Some(false) => "(disabled_at IS NOT NULL OR expires_at <= $2)",
            None => "CAST($2 AS BIGINT) IS NOT NULL",
        }
    );
    let (user_id, created_at, id) = place;
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(filter.user_id.as_deref())
        .bind(now.0)
        .bind(user_id)
        .bind(created_at)
        .bind(id)
        .bind(i64::from(limit))
        .fetch_all(&mut *snapshot)
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get("user_id")?, read_item(row)?)))
        .collect()
}

/// Returns the owner of a key.
pub async fn find_owner(database: &Database, key_id: &str) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar("SELECT user_id FROM api_keys WHERE id = $1")
        .bind(key_id)
        .fetch_optional(database.reader())
        .await
}

/// The display data of a key.
#[derive(Debug, Clone)]
pub struct KeyName {
    /// The key's id.
    pub id: String,
    /// The name that its user gave it.
    pub name: String,
    /// The key's first characters.
    pub prefix: String,
}

/// Returns the keys of a user, or of all users, by the hashes that charges name.
pub async fn name_keys(
    database: &Database,
    user_id: Option<&str>,
    hashes: &[String],
) -> sqlx::Result<BTreeMap<String, KeyName>> {
    let list = database.dialect().texts(1);
    let sql = format!(
        "SELECT h.hash, k.id, k.name, k.prefix FROM api_key_hashes h JOIN api_keys k ON k.id = h.key_id \
         WHERE h.hash IN ({list}) AND (CAST($2 AS TEXT) IS NULL OR k.user_id = $2)"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(serde_json::Value::from(hashes.to_vec()).to_string())
        .bind(user_id)
        .fetch_all(database.reader())
        .await?;
    rows.iter()
        .map(|row| {
            let key = KeyName {
                id: row.try_get("id")?,
                name: row.try_get("name")?,
                prefix: row.try_get("prefix")?,
            };
            Ok((row.try_get("hash")?, key))
        })
        .collect()
}

/// Returns the hashes that charges name for a user's key; empty if the user has no such key.
pub async fn find_hashes(
    database: &Database,
    user_id: &str,
    key_id: &str,
) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT h.hash FROM api_key_hashes h JOIN api_keys k ON k.id = h.key_id \
         WHERE h.key_id = $1 AND k.user_id = $2",
    )
    .bind(key_id)
    .bind(user_id)
    .fetch_all(database.reader())
    .await
}
