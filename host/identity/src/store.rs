//! Users and API keys in the database.

use std::collections::BTreeMap;

use sqlx::Row;
use sqlx::any::AnyRow;
use weir_ledger::plans::plan_ends_at;
use weir_ledger::{BudgetPart, BudgetState, Budgets, Credits, Plan};
use weir_request::audit::{self, Actor, AuditEvent};
use weir_request::content_log::ContentLogChoice;
use weir_request::limits::data::{CallerDataLimits, DataLimits};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::{DatabaseConnections, SqlDialect, Transaction};
use weir_storage::ids::{self, Hex};

use super::api_key::{LIFETIME_DAYS, RawKey, StoredKey};
use super::filter_options::{CallerFilterOptions, FilterOptions};
use super::limits::{LimitsOwner, limits_owner};
use super::part_rates::{PartRate, PartRates, parts_of};
use super::pepper::{Pepper, Peppers};
use super::roles::Role;
use super::scope::KeyScope;
use super::stored_plan::StoredPlan;

/// The record of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user's id, `usr_…`.
    pub id: String,
    /// The plan.
    pub plan: StoredPlan,
    /// The e-mail address, verified by the issuer, in lower case.
    pub email: Option<String>,
    /// The rates of the parts of the personal account.
    pub rates: PartRates,
    /// The options of the personal account for filters.
    pub filter_options: FilterOptions,
    /// The start of the admin role; `None` for other users.
    pub admin_since: Option<Millis>,
    /// The time at which an operator disabled the user; `None` if enabled.
    pub disabled_at: Option<Millis>,
    /// The time of the user's first request, or of the command that created the user.
    pub created_at: Millis,
}

/// Returns the user with this issuer and subject, and creates the user if necessary. Concurrent callers get the same
/// user.
pub async fn find_or_create_web_user(
    database: &Database,
    issuer: &str,
    subject: &str,
    now: Millis,
) -> sqlx::Result<User> {
    if let Some(user) = find_web_user(database.reader(), issuer, subject).await? {
        return Ok(user);
    }
    let mut transaction = database.begin().await?;
    insert_web_user(&mut transaction, issuer, subject, now).await?;
    transaction.commit().await?;
    // A separate statement on the writer: the loser of a race sees the winner's row only now.
    find_web_user(database.writer(), issuer, subject)
        .await?
        .ok_or(sqlx::Error::RowNotFound)
}

/// Creates the user with this issuer and subject, unless there is one.
pub async fn insert_web_user(
    transaction: &mut Transaction,
    issuer: &str,
    subject: &str,
    now: Millis,
) -> sqlx::Result<()> {
    let user_id = ids::user_id();
    let inserted = sqlx::query(
        "INSERT INTO users (id, issuer, subject, created_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (issuer, subject) DO NOTHING",
    )
    .bind(&user_id)
    .bind(issuer)
    .bind(subject)
    .bind(now.0)
    .execute(&mut *transaction)
    .await?;
    if inserted.rows_affected() == 0 {
        return Ok(());
    }
    let by = Actor::issuer(issuer);
    audit::insert_within(transaction, &AuditEvent::UserCreated { user_id }, Some(&by)).await
}

/// Stores the verified e-mail address of a token if it is a new one.
pub async fn keep_email(
    database: &Database,
    user: &User,
    verified: Option<&str>,
) -> sqlx::Result<()> {
    let Some(email) = verified.map(str::to_lowercase) else {
        return Ok(());
    };
    if user.email.as_ref() == Some(&email) {
        return Ok(());
    }
    // An erased user gets no e-mail address from a request that began before.
    sqlx::query("UPDATE users SET email = $1 WHERE id = $2 AND deleted_at IS NULL")
        .bind(email)
        .bind(&user.id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Returns the user with this issuer and subject, if there is one.
pub async fn find_web_user(
    pool: &DatabaseConnections,
    issuer: &str,
    subject: &str,
) -> sqlx::Result<Option<User>> {
    let ends_at = plan_ends_at("users.id");
    let row = sqlx::query(sqlx::AssertSqlSafe(format!(
        "SELECT id, plan, {ends_at} AS plan_ends_at, email, rates, filter_options, admin_since, disabled_at, created_at \
         FROM users WHERE issuer = $1 AND subject = $2"
    )))
    .bind(issuer)
    .bind(subject)
    .fetch_optional(pool)
    .await?;
    row.map(|row| read_user(&row)).transpose()
}

/// Returns the user with an id.
pub async fn find_user(database: &Database, user_id: &str) -> sqlx::Result<Option<User>> {
    let ends_at = plan_ends_at("users.id");
    let row = sqlx::query(sqlx::AssertSqlSafe(format!(
        "SELECT id, plan, {ends_at} AS plan_ends_at, email, rates, filter_options, admin_since, \
         NULLIF(disabled_at, 0) AS disabled_at, created_at FROM users WHERE id = $1"
    )))
    .bind(user_id)
    .fetch_optional(database.reader())
    .await?;
    row.map(|row| read_user(&row)).transpose()
}

/// Returns the current plan of a user; the free plan if the user does not exist.
pub async fn plan_of(database: &Database, user_id: &str, now: Millis) -> sqlx::Result<Plan> {
    let user = find_user(database, user_id).await?;
    Ok(user.map_or_else(Plan::default, |user| user.plan.at(now)))
}

fn read_user(row: &AnyRow) -> sqlx::Result<User> {
    let time = |column| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(column)?.map(Millis));
    Ok(User {
        id: row.try_get("id")?,
        plan: StoredPlan::read(row)?,
        email: row.try_get("email")?,
        rates: PartRates::read(row.try_get("rates")?)?,
        filter_options: FilterOptions::read(row.try_get("filter_options")?)?,
        admin_since: time("admin_since")?,
        disabled_at: time("disabled_at")?,
        created_at: Millis(row.try_get("created_at")?),
    })
}

/// The source of a disabled user whom the issuer's directory disabled.
const BY_DIRECTORY: &str = "directory";

/// Disables a user in an operator's name, so that no directory enables them. [`super::users`] applies it to all nodes.
pub async fn disable_user(database: &Database, user_id: &str, now: Millis) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE users SET disabled_at = COALESCE(NULLIF(disabled_at, 0), $1), disabled_by = NULL WHERE id = $2",
    )
    .bind(now.0)
    .bind(user_id)
    .execute(database.writer())
    .await
    .map(drop)
}

/// Disables an enabled person in a directory's name. Returns whether the person was enabled.
pub(super) async fn disable_by_directory(
    database: &Database,
    user_id: &str,
    now: Millis,
) -> sqlx::Result<bool> {
    let updated = sqlx::query(
        "UPDATE users SET disabled_at = $1, disabled_by = $2 WHERE id = $3 AND disabled_at IS NULL",
    )
    .bind(now.0)
    .bind(BY_DIRECTORY)
    .bind(user_id)
    .execute(database.writer())
    .await?;
    Ok(updated.rows_affected() > 0)
}

/// Enables a user, unless the user is erased. Returns whether it did.
pub async fn enable_user(database: &Database, user_id: &str) -> sqlx::Result<bool> {
    let updated = sqlx::query(
        "UPDATE users SET disabled_at = CASE kind WHEN 'organisation' THEN 0 END, disabled_by = NULL \
         WHERE id = $1 AND deleted_at IS NULL",
    )
    .bind(user_id)
    .execute(database.writer())
    .await?;
    Ok(updated.rows_affected() > 0)
}

/// Enables a person whom a directory disabled, unless the person is erased. Returns whether it did.
pub(super) async fn enable_by_directory(database: &Database, user_id: &str) -> sqlx::Result<bool> {
    let updated = sqlx::query(
        "UPDATE users SET disabled_at = NULL, disabled_by = NULL \
         WHERE id = $1 AND disabled_by = $2 AND deleted_at IS NULL",
    )
    .bind(user_id)
    .bind(BY_DIRECTORY)
    .execute(database.writer())
    .await?;
    Ok(updated.rows_affected() > 0)
}

/// Grants a user the admin role, which [`super::groups`] then leaves alone. Returns whether the user exists.
pub async fn grant_admin(database: &Database, user_id: &str, now: Millis) -> sqlx::Result<bool> {
    let updated = sqlx::query(
        "UPDATE users SET admin_since = COALESCE(admin_since, $1), admin_granted_by = NULL WHERE id = $2",
    )
    .bind(now.0)
    .bind(user_id)
    .execute(database.writer())
    .await?;
    Ok(updated.rows_affected() > 0)
}

/// Revokes a user's admin role. Returns whether the user exists.
pub async fn revoke_admin(database: &Database, user_id: &str) -> sqlx::Result<bool> {
    let updated =
        sqlx::query("UPDATE users SET admin_since = NULL, admin_granted_by = NULL WHERE id = $1")
            .bind(user_id)
            .execute(database.writer())
            .await?;
    Ok(updated.rows_affected() > 0)
}

/// Sets a person's name from the issuer's directory.
pub async fn set_name(database: &Database, user_id: &str, name: Option<&str>) -> sqlx::Result<()> {
    sqlx::query("UPDATE users SET name = $1 WHERE id = $2 AND deleted_at IS NULL")
        .bind(name)
        .bind(user_id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Sets a person's verified e-mail address, and their name if the issuer has one.
pub(super) async fn set_profile(
    database: &Database,
    user_id: &str,
    email: Option<&str>,
    name: Option<&str>,
) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE users SET email = $1, name = COALESCE($2, name) WHERE id = $3 AND deleted_at IS NULL",
    )
    .bind(email)
    .bind(name)
    .bind(user_id)
    .execute(database.writer())
    .await
    .map(drop)
}

/// The record of a key.
pub async fn find_key(database: &Database, id: &str) -> sqlx::Result<Option<StoredKey>> {
    let found = find_keys(database, &[id]).await?;
    Ok(found.into_iter().next().map(|(_, key)| key))
}

/// Returns the records of the keys that exist, by id.
pub async fn find_keys(
    database: &Database,
    ids: &[&str],
) -> sqlx::Result<Vec<(String, StoredKey)>> {
    let among = database.dialect().texts(1);
    let text = format!(
        "SELECT k.id, k.user_id, k.holder_id, k.project_id, k.hash, k.pepper_version, k.expires_at, k.disabled_at, \
         k.models, k.scope, u.plan, {} AS plan_ends_at, u.rates, u.deleted_at, {OPTIONS}, {}, \
         m.role, p.archived_at, COALESCE(NULLIF(u.disabled_at, 0), h.disabled_at) AS user_disabled_at \
         FROM api_keys k JOIN users u ON u.id = k.user_id LEFT JOIN users h ON h.id = k.holder_id \
         LEFT JOIN projects p ON p.id = k.project_id \
         LEFT JOIN members m ON m.organisation_id = k.user_id AND m.user_id = k.holder_id \
         WHERE k.id IN ({among})",
        plan_ends_at("u.id"),
        limits_owner()
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(serde_json::json!(ids).to_string())
        .fetch_all(database.reader())
        .await?;
    let time = |row: &AnyRow, column| {
        let time = row.try_get::<Option<i64>, _>(column)?;
        Ok::<_, sqlx::Error>(time.map(Millis))
    };
    let read = |row: &AnyRow| {
        let account_id: String = row.try_get("user_id")?;
        let holder_id: Option<String> = row.try_get("holder_id")?;
        let role: Option<String> = row.try_get("role")?;
        // A key ends with its holder's membership, its project and its organisation.
        let (role, ended) = match (&holder_id, role) {
            (None, _) => (Role::Owner, None),
            (Some(_), Some(role)) => (read_role(&role)?, time(row, "deleted_at")?),
            (Some(_), None) => (Role::Viewer, Some(Millis(0))),
        };
        let holder_id = holder_id.unwrap_or_else(|| account_id.clone());
        let (id, project_id): (String, Option<String>) =
            (row.try_get("id")?, row.try_get("project_id")?);
        let mut rates = PartRates::read(row.try_get("rates")?)?;
        let project = project_id.as_deref();
        rates.retain(&parts_of(&account_id, &holder_id, Some(&id), project));
        let key = StoredKey {
            limits: LimitsOwner::read(row, &account_id)?,
            holder_id,
            account_id,
            role,
            project_id,
            rates,
            plan: StoredPlan::read(row)?,
            hash: row.try_get("hash")?,
            pepper_version: row.try_get("pepper_version")?,
            expires_at: Millis(row.try_get("expires_at")?),
            disabled_at: time(row, "disabled_at")?
                .or(ended)
                .or(time(row, "archived_at")?),
            user_disabled_at: time(row, "user_disabled_at")?,
            models: read_models(row)?,
            filter_options: read_filter_options(row)?,
            data_limits: read_data_limits(row)?,
            content_log: read_content_log(row)?,
            scope: read_scope(row)?,
        };
        Ok((id, key))
    };
    rows.iter().map(read).collect()
}

/// Locks the row of a user, an organisation or a service account until the end of a transaction, so that concurrent
/// changes wait. The statement changes nothing but locks the row on both databases.
pub async fn lock_account(transaction: &mut Transaction, account_id: &str) -> sqlx::Result<()> {
    sqlx::query("UPDATE users SET id = id WHERE id = $1")
        .bind(account_id)
        .execute(transaction)
        .await
        .map(drop)
}

/// Changes the rates of an account's parts. Returns whether the account exists and may have so many.
pub async fn change_rates(
    database: &Database,
    account_id: &str,
    part: BudgetPart,
    rate: PartRate,
) -> sqlx::Result<bool> {
    let mut transaction = database.begin().await?;
    lock_account(&mut transaction, account_id).await?;
    let stored: Option<Option<String>> =
        sqlx::query_scalar("SELECT rates FROM users WHERE id = $1")
            .bind(account_id)
            .fetch_optional(&mut transaction)
            .await?;
    let Some(stored) = stored else {
        return Ok(false);
    };
    let mut rates = PartRates::read(stored.as_deref())?;
    if !rates.set(part, rate) {
        return Ok(false);
    }
    sqlx::query("UPDATE users SET rates = $1 WHERE id = $2")
        .bind(rates.store())
        .bind(account_id)
        .execute(&mut transaction)
        .await?;
    transaction.commit().await?;
    Ok(true)
}

/// Returns the rates of an account's parts.
pub async fn find_rates(database: &Database, account_id: &str) -> sqlx::Result<PartRates> {
    let stored: Option<Option<String>> =
        sqlx::query_scalar("SELECT rates FROM users WHERE id = $1")
            .bind(account_id)
            .fetch_optional(database.reader())
            .await?;
    PartRates::read(stored.flatten().as_deref())
}

/// Replaces the options of a key for filters.
pub async fn set_key_filter_options(
    database: &Database,
    account_id: &str,
    key_id: &str,
    options: &FilterOptions,
) -> sqlx::Result<()> {
    sqlx::query("UPDATE api_keys SET filter_options = $1 WHERE id = $2 AND user_id = $3")
        .bind(options.store())
        .bind(key_id)
        .bind(account_id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Replaces the options of an account for filters. Returns whether the account exists.
pub async fn set_account_filter_options(
    database: &Database,
    account_id: &str,
    options: &FilterOptions,
) -> sqlx::Result<bool> {
    sqlx::query("UPDATE users SET filter_options = $1 WHERE id = $2 AND deleted_at IS NULL")
        .bind(options.store())
        .bind(account_id)
        .execute(database.writer())
        .await
        .map(|done| done.rows_affected() > 0)
}

/// Replaces the limits of a key on providers.
pub async fn set_key_data_limits(
    database: &Database,
    account_id: &str,
    key_id: &str,
    limits: &DataLimits,
) -> sqlx::Result<()> {
    sqlx::query("UPDATE api_keys SET data_limits = $1 WHERE id = $2 AND user_id = $3")
        .bind(limits.store())
        .bind(key_id)
        .bind(account_id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Replaces the limits of an organisation on providers.
pub async fn set_organisation_data_limits(
    database: &Database,
    organisation_id: &str,
    limits: &DataLimits,
) -> sqlx::Result<()> {
    sqlx::query("UPDATE users SET data_limits = $1 WHERE id = $2")
        .bind(limits.store())
        .bind(organisation_id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Sets whether weir stores the content of a key's requests.
pub async fn set_key_content_log(
    database: &Database,
    account_id: &str,
    key_id: &str,
    is_on: bool,
) -> sqlx::Result<()> {
    sqlx::query("UPDATE api_keys SET content_log = $1 WHERE id = $2 AND user_id = $3")
        .bind(i64::from(is_on))
        .bind(key_id)
        .bind(account_id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Sets whether weir stores the content of an organisation's requests.
pub async fn set_organisation_content_log(
    database: &Database,
    organisation_id: &str,
    is_on: bool,
) -> sqlx::Result<()> {
    sqlx::query("UPDATE users SET content_log = $1 WHERE id = $2")
        .bind(i64::from(is_on))
        .bind(organisation_id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// The options of a key and its account for their requests.
#[derive(Debug, Default)]
pub struct StoredOptions {
    /// The options for filters.
    pub filter_options: CallerFilterOptions,
    /// The limits on providers.
    pub data_limits: CallerDataLimits,
    /// Whether the content of requests is stored.
    pub content_log: ContentLogChoice,
}

/// The columns of [`StoredOptions`], of a key `k` and its account `u`.
const OPTIONS: &str = "k.filter_options AS key_options, u.filter_options AS account_options, \
    k.data_limits AS key_limits, u.data_limits AS account_limits, k.content_log AS key_log, u.content_log AS account_log";

/// Returns the options of an account and of one of its keys.
pub async fn find_options(
    database: &Database,
    account_id: &str,
    key_id: Option<&str>,
) -> sqlx::Result<StoredOptions> {
    let text = format!(
        "SELECT {OPTIONS} FROM users u LEFT JOIN api_keys k ON k.user_id = u.id AND k.id = $2 WHERE u.id = $1"
    );
    let row = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(account_id)
        .bind(key_id)
        .fetch_optional(database.reader())
        .await?;
    match row {
        Some(row) => Ok(StoredOptions {
            filter_options: read_filter_options(&row)?,
            data_limits: read_data_limits(&row)?,
            content_log: read_content_log(&row)?,
        }),
        None => Ok(StoredOptions::default()),
    }
}

fn read_filter_options(row: &AnyRow) -> sqlx::Result<CallerFilterOptions> {
    Ok(CallerFilterOptions {
        key: FilterOptions::read(row.try_get("key_options")?)?,
        account: FilterOptions::read(row.try_get("account_options")?)?,
    })
}

fn read_data_limits(row: &AnyRow) -> sqlx::Result<CallerDataLimits> {
    Ok(CallerDataLimits {
        key: DataLimits::read(row.try_get("key_limits")?)?,
        organisation: DataLimits::read(row.try_get("account_limits")?)?,
    })
}

fn read_content_log(row: &AnyRow) -> sqlx::Result<ContentLogChoice> {
    // Without a key, its column is null.
    let is_on = |column| {
        let column: Option<i64> = row.try_get(column)?;
        Ok::<_, sqlx::Error>(column == Some(1))
    };
    Ok(ContentLogChoice {
        key: is_on("key_log")?,
        organisation: is_on("account_log")?,
    })
}

/// Reads the name of a role from the database.
pub fn read_role(name: &str) -> sqlx::Result<Role> {
    name.parse()
        .map_err(|wanted| sqlx::Error::Decode(format!("{name:?} is not {wanted}").into()))
}

/// Reads the scope of a key.
fn read_scope(row: &AnyRow) -> sqlx::Result<KeyScope> {
    let name: String = row.try_get("scope")?;
    name.parse()
        .map_err(|wanted| sqlx::Error::Decode(format!("{name:?} is not {wanted}").into()))
}

/// The models that a key may use; all if empty.
pub(super) fn read_models(row: &AnyRow) -> sqlx::Result<Vec<String>> {
    let models: Option<String> = row.try_get("models")?;
    let models = models
        .map(|models| serde_json::from_str(&models))
        .transpose();
    Ok(models
        .map_err(|error| sqlx::Error::Decode(error.into()))?
        .unwrap_or_default())
}

/// Sets a key's models, all if empty, and its expiry.
pub async fn limit_key(
    database: &Database,
    key_id: &str,
    models: &[String],
    expires_at: Millis,
) -> sqlx::Result<()> {
    let models = (!models.is_empty()).then(|| serde_json::Value::from(models).to_string());
    sqlx::query("UPDATE api_keys SET models = $1, expires_at = $2 WHERE id = $3")
        .bind(models)
        .bind(expires_at.0)
        .bind(key_id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Sets the scope of a key that nobody has yet.
pub async fn set_key_scope(database: &Database, key_id: &str, scope: KeyScope) -> sqlx::Result<()> {
    sqlx::query("UPDATE api_keys SET scope = $1 WHERE id = $2")
        .bind(scope.name())
        .bind(key_id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Returns a user's keys that were not revoked, with their expiry.
pub async fn active_key_expiry(
    database: &Database,
    user_id: &str,
) -> sqlx::Result<BTreeMap<String, Millis>> {
    let rows = sqlx::query(
        "SELECT id, expires_at FROM api_keys WHERE user_id = $1 AND disabled_at IS NULL",
    )
    .bind(user_id)
    .fetch_all(database.reader())
    .await?;
    rows.iter()
        .map(|row| Ok((row.try_get("id")?, Millis(row.try_get("expires_at")?))))
        .collect()
}

/// The maximum active keys of a user.
pub const MAX_ACTIVE_KEYS: i64 = 10;

/// The maximum keys that a user may create within a day, including revoked ones: otherwise, a loop in a script could
/// fill the disk with rows.
pub const MAX_KEYS_A_DAY: i64 = 100;

/// The result of a key's creation.
pub enum KeyCreation {
    /// The new key.
    Made(RawKey),
    /// The user has [`MAX_ACTIVE_KEYS`].
    TooManyActive,
    /// The user has made [`MAX_KEYS_A_DAY`] within a day.
    TooManyToday,
}

/// A key as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyItem {
    /// The key's id.
    pub id: String,
    /// The display name.
    pub name: String,
    /// The key's first characters.
    pub prefix: String,
    /// Time of creation.
    pub created_at: Millis,
    /// Time of last use, to the minute.
    pub last_used_at: Option<Millis>,
    /// The expiry.
    pub expires_at: Millis,
    /// Whether the key was revoked.
    pub disabled: bool,
    /// The models that it may use; all if empty.
    pub models: Vec<String>,
    /// The key's options for filters.
    pub filter_options: FilterOptions,
    /// The key's limits on providers.
    pub data_limits: DataLimits,
    /// Whether the content of the key's requests is stored.
    pub content_log: ContentLogChoice,
    /// The endpoints that it may use.
    pub scope: KeyScope,
    /// The person or the service account that uses the key; `None` for keys of a personal account.
    pub holder_id: Option<String>,
    /// The project that the key belongs to.
    pub project_id: Option<String>,
    /// The account's budgets, including the key's.
    pub budgets: Budgets,
}

/// The owner of a new key.
#[derive(Debug, Clone, Copy)]
pub struct KeyOwner<'a> {
    /// The account that pays.
    pub account_id: &'a str,
    /// The person or the service account that uses the key; `None` for keys of a personal account.
    pub holder_id: Option<&'a str>,
    /// The project that the key belongs to.
    pub project_id: Option<&'a str>,
}

impl<'a> KeyOwner<'a> {
    /// Returns the owner of a personal account's keys.
    pub const fn personal(user_id: &'a str) -> Self {
        Self {
            account_id: user_id,
            holder_id: None,
            project_id: None,
        }
    }
}

/// The maximum keys in a list.
const MAX_LISTED: i64 = 100;

/// Returns up to 100 keys of an account, or of one holder in it: first the keys that were not revoked, then the revoked
/// ones, newest first.
pub async fn list_keys(
    database: &Database,
    account_id: &str,
    holder_id: Option<&str>,
) -> sqlx::Result<Vec<KeyItem>> {
    let sql = format!(
        "SELECT id, name, prefix, created_at, last_used_at, expires_at, disabled_at, models, filter_options, data_limits, \
         holder_id, project_id, {PARTS_OF_KEY} FROM api_keys WHERE user_id = $1 AND {} \
         ORDER BY CASE WHEN disabled_at IS NULL THEN 0 ELSE 1 END, created_at DESC, id LIMIT $3",
        match holder_id {
            Some(_) => "holder_id = $2",
            None => "CAST($2 AS TEXT) IS NULL",
        }
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(account_id)
        .bind(holder_id)
        .bind(MAX_LISTED)
        .fetch_all(database.reader())
        .await?;
    rows.iter().map(read_item).collect()
}

/// Further columns of a key in a query of `api_keys`: the scope, the choices of the content log, its account's budgets, and the
/// credits in blocks for the key. A block's parts are lines.
pub(super) const PARTS_OF_KEY: &str = "scope, content_log AS key_log, \
    (SELECT content_log FROM users WHERE users.id = api_keys.user_id) AS account_log, (SELECT budgets FROM accounts WHERE accounts.id = api_keys.user_id) AS budgets, \
    (SELECT CAST(COALESCE(SUM(plan_reserved + top_up_reserved), 0) AS BIGINT) FROM blocks \
    WHERE blocks.account_id = api_keys.user_id \
    AND '\n' || blocks.parts || '\n' LIKE '%\n' || api_keys.id || '\n%') AS blocked";

/// Reads a key from a row with its columns and [`PARTS_OF_KEY`].
pub(super) fn read_item(row: &AnyRow) -> sqlx::Result<KeyItem> {
    let time = |column| row.try_get::<Option<i64>, _>(column);
    let budgets: Option<String> = row.try_get("budgets")?;
    let budgets = budgets.map(|budgets| serde_json::from_str(&budgets));
    let budgets: Option<Budgets> = budgets
        .transpose()
        .map_err(|error| sqlx::Error::Decode(error.into()))?;
    let mut budgets = budgets.unwrap_or_default();
    let id: String = row.try_get("id")?;
    let blocked = Credits::from_micro(row.try_get("blocked")?);
    budgets.without_blocks(BudgetPart::Key(id.clone()), blocked);
    Ok(KeyItem {
        id,
        name: row.try_get("name")?,
        prefix: row.try_get("prefix")?,
        created_at: Millis(row.try_get("created_at")?),
        last_used_at: time("last_used_at")?.map(Millis),
        expires_at: Millis(row.try_get("expires_at")?),
        disabled: time("disabled_at")?.is_some(),
        models: read_models(row)?,
        filter_options: FilterOptions::read(row.try_get("filter_options")?)?,
        data_limits: DataLimits::read(row.try_get("data_limits")?)?,
        content_log: read_content_log(row)?,
        scope: read_scope(row)?,
        holder_id: row.try_get("holder_id")?,
        project_id: row.try_get("project_id")?,
        budgets,
    })
}

impl KeyItem {
    /// Returns the standing of the key's budgets at a time.
    pub fn standings(&self, now: Millis) -> Vec<BudgetState> {
        let part = BudgetPart::Key(self.id.clone());
        self.budgets.standings(Some(&part), Credits::ZERO, now)
    }
}

/// Creates a key for an existing user or service account, unless they have too many in the account.
pub async fn create_limited_key(
    database: &Database,
    peppers: &Peppers,
    owner: KeyOwner<'_>,
    name: &str,
    now: Millis,
) -> sqlx::Result<KeyCreation> {
    let mut transaction = database.begin().await?;
    let holder_id = owner.holder_id.unwrap_or(owner.account_id);
    lock_account(&mut transaction, holder_id).await?;
    let active: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM api_keys \
         WHERE user_id = $1 AND COALESCE(holder_id, user_id) = $2 AND disabled_at IS NULL AND expires_at > $3",
    )
    .bind(owner.account_id)
    .bind(holder_id)
    .bind(now.0)
    .fetch_one(&mut transaction)
    .await?;
    if active >= MAX_ACTIVE_KEYS {
        return Ok(KeyCreation::TooManyActive);
    }
    let today: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM api_keys \
         WHERE user_id = $1 AND COALESCE(holder_id, user_id) = $2 AND created_at > $3",
    )
    .bind(owner.account_id)
    .bind(holder_id)
    .bind(now.plus_days(-1).0)
    .fetch_one(&mut transaction)
    .await?;
    if today >= MAX_KEYS_A_DAY {
        return Ok(KeyCreation::TooManyToday);
    }
    let key = RawKey::generate();
    insert_key(&mut transaction, &key, peppers.current(), owner, name, now).await?;
    transaction.commit().await?;
    Ok(KeyCreation::Made(key))
}

/// Returns a user's active keys with a name.
pub async fn active_keys(
    database: &Database,
    user_id: &str,
    name: &str,
) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT id FROM api_keys WHERE user_id = $1 AND name = $2 AND disabled_at IS NULL",
    )
    .bind(user_id)
    .bind(name)
    .fetch_all(database.reader())
    .await
}

/// Whether the account has this key, active or not.
pub async fn has_key(database: &Database, account_id: &str, key_id: &str) -> sqlx::Result<bool> {
    let holder = find_holder(database, account_id, key_id).await?;
    Ok(holder.is_some())
}

/// Returns the holder of an account's key; `None` if the account has no such key.
pub async fn find_holder(
    database: &Database,
    account_id: &str,
    key_id: &str,
) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar(
        "SELECT COALESCE(holder_id, user_id) FROM api_keys WHERE id = $1 AND user_id = $2",
    )
    .bind(key_id)
    .bind(account_id)
    .fetch_optional(database.reader())
    .await
}

/// Revokes a key, unless it was revoked before.
pub async fn disable_key(database: &Database, key_id: &str, now: Millis) -> sqlx::Result<()> {
    sqlx::query("UPDATE api_keys SET disabled_at = COALESCE(disabled_at, $1) WHERE id = $2")
        .bind(now.0)
        .bind(key_id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Moves a key to a newer pepper, unless it was revoked or changed since the read. Returns whether the key was moved. A
/// key never moves to an older pepper: during a rollout, that may still be the current one on some nodes.
pub async fn move_key(
    database: &Database,
    key: &RawKey,
    stored: &StoredKey,
    pepper: &Pepper,
) -> sqlx::Result<bool> {
    let mut transaction = database.begin().await?;
    // The hash is stored even if the key was not moved, because this node's charges name it.
    keep_hash(&mut transaction, key, pepper).await?;
    let moved = sqlx::query(
        "UPDATE api_keys SET hash = $1, pepper_version = $2 \
         WHERE id = $3 AND hash = $4 AND disabled_at IS NULL AND pepper_version < $2",
    )
    .bind(key.hash(&pepper.key).to_vec())
    .bind(pepper.version)
    .bind(key.id())
    .bind(stored.hash.clone())
    .execute(&mut transaction)
    .await?;
    transaction.commit().await?;
    Ok(moved.rows_affected() > 0)
}

/// Writes the times of last use, unless a later use is stored.
pub async fn set_last_used(database: &Database, used: &[(String, Millis)]) -> sqlx::Result<()> {
    let mut used: Vec<_> = used.iter().map(|(id, at)| (id, at.0)).collect();
    used.sort();
    let batch = serde_json::to_string(&used).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let sql = match database.dialect() {
        SqlDialect::Sqlite => {
            "UPDATE api_keys SET last_used_at = used.at \
             FROM (SELECT value ->> 0 AS id, value ->> 1 AS at FROM json_each($1)) AS used \
             WHERE api_keys.id = used.id AND COALESCE(last_used_at, 0) < used.at"
        }
        // The rows are locked in one order, so that two nodes that write the same keys cannot deadlock.
        SqlDialect::Postgres => {
            "WITH used AS ( \
                SELECT value ->> 0 AS id, CAST(value ->> 1 AS BIGINT) AS at \
                FROM jsonb_array_elements(CAST($1 AS JSONB)) \
             ), locked AS ( \
                SELECT k.id, used.at FROM api_keys k JOIN used ON used.id = k.id \
                ORDER BY k.id FOR UPDATE OF k \
             ) UPDATE api_keys SET last_used_at = locked.at FROM locked \
             WHERE api_keys.id = locked.id AND COALESCE(last_used_at, 0) < locked.at"
        }
    };
    sqlx::query(sql)
        .bind(batch)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Creates a key for a user, and creates the user if the id is unknown.
///
/// With `replace`, the user's keys of the same name are revoked in the same transaction.
pub async fn create_key(
    database: &Database,
    peppers: &Peppers,
    user_id: &str,
    name: &str,
    replace: bool,
    by: Option<&Actor>,
    now: Millis,
) -> sqlx::Result<RawKey> {
    let key = RawKey::generate();
    let owner = (user_id, name);
    keep_key(database, peppers, &key, owner, replace, by, now).await?;
    Ok(key)
}

/// Registers an existing key; `owner` is its user's id and its name. `by` creates the user if the id is unknown.
pub async fn keep_key(
    database: &Database,
    peppers: &Peppers,
    key: &RawKey,
    owner: (&str, &str),
    replace: bool,
    by: Option<&Actor>,
    now: Millis,
) -> sqlx::Result<()> {
    let (user_id, name) = owner;
    let mut transaction = database.begin().await?;
    let insert = "INSERT INTO users (id, created_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
    let inserted = sqlx::query(insert)
        .bind(user_id)
        .bind(now.0)
        .execute(&mut transaction)
        .await?;
    if inserted.rows_affected() > 0 {
        let user_id = user_id.to_owned();
        audit::insert_within(&mut transaction, &AuditEvent::UserCreated { user_id }, by).await?;
    }
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
    let pepper = peppers.current();
    let owner = KeyOwner::personal(user_id);
    insert_key(&mut transaction, key, pepper, owner, name, now).await?;
    transaction.commit().await
}

/// Extends an active key to the lifetime of a new one, under the current pepper.
pub async fn renew_key(
    database: &Database,
    peppers: &Peppers,
    key: &RawKey,
    now: Millis,
) -> sqlx::Result<()> {
    let pepper = peppers.current();
    let mut transaction = database.begin().await?;
    keep_hash(&mut transaction, key, pepper).await?;
    sqlx::query(
        "UPDATE api_keys SET hash = $1, pepper_version = $2, expires_at = $3 \
         WHERE id = $4 AND disabled_at IS NULL",
    )
    .bind(key.hash(&pepper.key).to_vec())
    .bind(pepper.version)
    .bind(now.plus_days(LIFETIME_DAYS).0)
    .bind(key.id())
    .execute(&mut transaction)
    .await?;
    transaction.commit().await
}

async fn insert_key(
    transaction: &mut Transaction,
    key: &RawKey,
    pepper: &Pepper,
    owner: KeyOwner<'_>,
    name: &str,
    now: Millis,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO api_keys (id, user_id, name, prefix, hash, pepper_version, created_at, expires_at, holder_id, \
         project_id, managed_limits) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '')",
    )
    .bind(key.id())
    .bind(owner.account_id)
    .bind(name)
    .bind(key.prefix())
    .bind(key.hash(&pepper.key).to_vec())
    .bind(pepper.version)
    .bind(now.0)
    .bind(now.plus_days(LIFETIME_DAYS).0)
    .bind(owner.holder_id)
    .bind(owner.project_id)
    .execute(&mut *transaction)
    .await?;
    keep_hash(transaction, key, pepper).await
}

/// Stores the hash that a key's charges carry while a pepper is the current one.
async fn keep_hash(
    transaction: &mut Transaction,
    key: &RawKey,
    pepper: &Pepper,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO api_key_hashes (hash, key_id) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING",
    )
    .bind(Hex(&key.hash(&pepper.key)).to_string())
    .bind(key.id())
    .execute(transaction)
    .await
    .map(drop)
}
