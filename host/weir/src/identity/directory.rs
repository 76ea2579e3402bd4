//! Users and keys as operators look for them.
//!
//! Lists are in the order of an index, and go on after the last item of the part before: whatever has come or gone since,
//! nothing is shown twice or skipped that was there all along.

use std::collections::BTreeMap;

use sqlx::Row;
use sqlx::any::AnyRow;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;

use super::store::{KeyItem, read_item};

/// A user.
#[derive(Debug, Clone)]
pub struct UserRecord {
    /// The user's id.
    pub id: String,
    /// The issuer whose tokens name the user, and what they call them: not of those who have API keys only.
    pub issuer: Option<String>,
    /// See `issuer`.
    pub subject: Option<String>,
    /// The plan's name.
    pub plan: String,
    /// Since when it is an administrator, if it is one.
    pub admin_since: Option<Millis>,
    /// Since when it is disabled, if it is.
    pub disabled_at: Option<Millis>,
    /// When it was first seen.
    pub created_at: Millis,
}

/// Which users; where a field is `None`, all.
#[derive(Debug, Clone, Default)]
pub struct UserFilter {
    /// What an issuer calls them.
    pub subject: Option<String>,
    /// The plan's name.
    pub plan: Option<String>,
    /// Whether they are administrators.
    pub admin: Option<bool>,
    /// Whether they are disabled.
    pub disabled: Option<bool>,
    /// Those after the one of this id.
    pub after: Option<String>,
}

/// Which keys; where a field is `None`, all.
#[derive(Debug, Clone, Default)]
pub struct KeyFilter {
    /// The user whose they are.
    pub user_id: Option<String>,
    /// Whether they work yet.
    pub active: Option<bool>,
    /// Those after the one of this id.
    pub after: Option<String>,
}

const USER: &str =
    "SELECT id, issuer, subject, plan, admin_since, disabled_at, created_at FROM users";

/// The users that fit, by id, so many at most.
pub async fn list_users(
    database: &Database,
    filter: &UserFilter,
    limit: u32,
) -> sqlx::Result<Vec<UserRecord>> {
    let mut snapshot = database.snapshot().await?;
    // A condition that may be for nothing has no index. The parameters are there in any case.
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
            Some(true) => "disabled_at IS NOT NULL",
            Some(false) => "disabled_at IS NULL",
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

/// The user of an id.
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
        issuer: row.try_get("issuer")?,
        subject: row.try_get("subject")?,
        plan: row.try_get("plan")?,
        admin_since: time("admin_since")?.map(Millis),
        disabled_at: time("disabled_at")?.map(Millis),
        created_at: Millis(row.try_get("created_at")?),
    })
}

/// The keys that fit and their users' ids, by user and then by age, so many at most.
pub async fn list_keys(
    database: &Database,
    filter: &KeyFilter,
    limit: u32,
    now: Millis,
) -> sqlx::Result<Vec<(String, KeyItem)>> {
    let mut snapshot = database.snapshot().await?;
    // PostgreSQL has an index for a comparison with values, and none for one with a query.
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
    // A condition that may be for nothing has no index either. The parameters are there in any case.
    let sql = format!(
        "SELECT id, user_id, name, prefix, created_at, last_used_at, expires_at, disabled_at, models, \
         (SELECT budgets FROM accounts WHERE accounts.id = api_keys.user_id) AS budgets FROM api_keys \
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

/// The user whose key it is.
pub async fn find_owner(database: &Database, key_id: &str) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar("SELECT user_id FROM api_keys WHERE id = $1")
        .bind(key_id)
        .fetch_optional(database.reader())
        .await
}

/// What a key is known by.
#[derive(Debug, Clone)]
pub struct KeyName {
    /// The key's id.
    pub id: String,
    /// The name that its user gave it.
    pub name: String,
    /// The key's first characters.
    pub prefix: String,
}

/// A user's keys, or everybody's, by the hashes that charges name them by.
pub async fn name_keys(
    database: &Database,
    user_id: Option<&str>,
    hashes: &[String],
) -> sqlx::Result<BTreeMap<String, KeyName>> {
    let list = match database.dialect() {
        SqlDialect::Sqlite => "SELECT value FROM json_each($1)",
        SqlDialect::Postgres => "SELECT jsonb_array_elements_text(CAST($1 AS JSONB))",
    };
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

/// The hashes that charges name a user's key by; none if they have no such key.
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
