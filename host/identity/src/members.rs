//! Members of organisations: who belongs to which, and the end of a membership.
//!
//! **Invariant:** the keys of a member end with the membership on all nodes at once: their tombstones are in the cache
//! before the database changes.

use sqlx::Row;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::plans::plan_ends_at;
use weir_request::content_log;
use weir_request::limits::data::DataLimits;
use weir_request::node::Core;
use weir_storage::Database;
use weir_storage::cache::Tombstone;
use weir_storage::clock::Millis;
use weir_storage::database::Transaction;

use super::errors::{not_on_all_nodes, store_failed, user_disabled};
use super::filter_options::FilterOptions;
use super::key_records::KEY_TTL;
use super::limits::{LimitsOwner, limits_owner};
use super::part_rates::PartRates;
use super::roles::Role;
use super::store::read_role;
use super::stored_plan::StoredPlan;

/// A user's membership in an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The role.
    pub role: Role,
    /// The organisation's plan.
    pub plan: StoredPlan,
    /// The rates of the organisation's parts.
    pub rates: PartRates,
    /// The organisation's options for filters.
    pub filter_options: FilterOptions,
    /// The organisation's limits on providers.
    pub data_limits: DataLimits,
    /// Whether the organisation stores the content of its requests.
    pub content_log: bool,
    /// The account for whose limits the organisation's requests count.
    pub limits: LimitsOwner,
}

/// Returns a user's membership in an organisation.
///
/// # Errors
///
/// 404 if the organisation does not exist or the user is not a member, 403 if an operator disabled the organisation.
pub async fn require(
    core: &Core,
    organisation_id: &str,
    user_id: &str,
) -> Result<Membership, ApiError> {
    let text = format!(
        "SELECT m.role, u.plan, {} AS plan_ends_at, u.rates, u.filter_options, u.data_limits, u.content_log, \
         NULLIF(u.disabled_at, 0) AS disabled_at, {} \
         FROM members m JOIN users u ON u.id = m.organisation_id \
         WHERE m.organisation_id = $1 AND m.user_id = $2 AND u.deleted_at IS NULL",
        plan_ends_at("u.id"),
        limits_owner()
    );
    let row = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(organisation_id)
        .bind(user_id)
        .fetch_optional(core.database.reader())
        .await
        .map_err(store_failed)?;
    let row = row.ok_or_else(unknown)?;
    let read = || {
        let is_disabled = row.try_get::<Option<i64>, _>("disabled_at")?.is_some();
        let role = read_role(&row.try_get::<String, _>("role")?)?;
        let membership = Membership {
            role,
            limits: LimitsOwner::read(&row, organisation_id)?,
            plan: StoredPlan::read(&row)?,
            rates: PartRates::read(row.try_get("rates")?)?,
            filter_options: FilterOptions::read(row.try_get("filter_options")?)?,
            data_limits: DataLimits::read(row.try_get("data_limits")?)?,
            content_log: row.try_get::<i64, _>("content_log")? == 1,
        };
        Ok::<_, sqlx::Error>((membership, is_disabled))
    };
    match read().map_err(store_failed)? {
        (_, true) => Err(user_disabled()),
        (membership, false) => Ok(membership),
    }
}

/// Returns whether a user is a member of an organisation that exists and is enabled.
pub async fn is_member(
    database: &Database,
    organisation_id: &str,
    user_id: &str,
) -> sqlx::Result<bool> {
    let found: Option<i64> = sqlx::query_scalar(
        "SELECT CAST(1 AS BIGINT) FROM members m JOIN users u ON u.id = m.organisation_id \
         WHERE m.organisation_id = $1 AND m.user_id = $2 AND u.deleted_at IS NULL \
         AND NULLIF(u.disabled_at, 0) IS NULL",
    )
    .bind(organisation_id)
    .bind(user_id)
    .fetch_optional(database.reader())
    .await?;
    Ok(found.is_some())
}

/// Returns whether an organisation has an active project with this id.
pub async fn has_project(
    database: &Database,
    organisation_id: &str,
    project_id: &str,
) -> sqlx::Result<bool> {
    let found: Option<i64> = sqlx::query_scalar(
        "SELECT CAST(1 AS BIGINT) FROM projects \
         WHERE id = $1 AND organisation_id = $2 AND archived_at IS NULL",
    )
    .bind(project_id)
    .bind(organisation_id)
    .fetch_optional(database.reader())
    .await?;
    Ok(found.is_some())
}

/// Returns whether an organisation has a service account with this id.
pub async fn has_service_account(
    database: &Database,
    organisation_id: &str,
    user_id: &str,
) -> sqlx::Result<bool> {
    let found: Option<i64> = sqlx::query_scalar(
        "SELECT CAST(1 AS BIGINT) FROM members m JOIN users u ON u.id = m.user_id \
         WHERE m.organisation_id = $1 AND m.user_id = $2 AND u.kind = 'service'",
    )
    .bind(organisation_id)
    .bind(user_id)
    .fetch_optional(database.reader())
    .await?;
    Ok(found.is_some())
}

/// The number of people who own an organisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerCount {
    /// All owners.
    pub all: i64,
    /// The owners whom neither an operator nor a directory has disabled.
    pub enabled: i64,
}

impl OwnerCount {
    /// Whether a change, which left `after`, took the last owner or the last enabled one.
    pub const fn has_lost_last(self, after: Self) -> bool {
        (self.all > 0 && after.all == 0) || (self.enabled > 0 && after.enabled == 0)
    }
}

/// Counts the owners of an organisation, before and after a change of its members.
pub async fn count_owners(
    transaction: &mut Transaction,
    organisation_id: &str,
) -> sqlx::Result<OwnerCount> {
    let (all, enabled) = sqlx::query_as(
        "SELECT CAST(COUNT(*) AS BIGINT), \
         CAST(COALESCE(SUM(CASE WHEN u.disabled_at IS NULL THEN 1 ELSE 0 END), 0) AS BIGINT) \
         FROM members m JOIN users u ON u.id = m.user_id \
         WHERE m.organisation_id = $1 AND m.role = 'owner' AND u.kind = 'person'",
    )
    .bind(organisation_id)
    .fetch_one(transaction)
    .await?;
    Ok(OwnerCount { all, enabled })
}

/// Revokes a member's keys in an organisation, with the end of the membership.
pub async fn revoke_keys(
    transaction: &mut Transaction,
    organisation_id: &str,
    user_id: &str,
    now: Millis,
) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE api_keys SET disabled_at = $1 \
         WHERE user_id = $2 AND holder_id = $3 AND disabled_at IS NULL",
    )
    .bind(now.0)
    .bind(organisation_id)
    .bind(user_id)
    .execute(&mut *transaction)
    .await?;
    content_log::store::delete_of_member(transaction, organisation_id, user_id).await
}

/// Makes all nodes read the keys of a member anew, before their role or membership changes.
pub async fn drop_cached_keys(
    core: &Core,
    organisation_id: &str,
    user_id: &str,
) -> Result<(), ApiError> {
    let keys: Vec<String> = sqlx::query_scalar(
        "SELECT id FROM api_keys WHERE holder_id = $1 AND user_id = $2 AND disabled_at IS NULL",
    )
    .bind(user_id)
    .bind(organisation_id)
    .fetch_all(core.database.reader())
    .await
    .map_err(store_failed)?;
    bury_keys(core, &keys).await
}

/// Makes all nodes read all keys of a user in organisations anew, before the user is disabled.
pub(super) async fn drop_cached_keys_everywhere(
    core: &Core,
    user_id: &str,
) -> Result<(), ApiError> {
    let keys: Vec<String> =
        sqlx::query_scalar("SELECT id FROM api_keys WHERE holder_id = $1 AND disabled_at IS NULL")
            .bind(user_id)
            .fetch_all(core.database.reader())
            .await
            .map_err(store_failed)?;
    bury_keys(core, &keys).await
}

/// Makes all nodes read these keys anew.
pub async fn bury_keys(core: &Core, keys: &[String]) -> Result<(), ApiError> {
    for key in keys {
        core.cache
            .bury(Tombstone::Record(key), KEY_TTL)
            .await
            .map_err(|_| not_on_all_nodes())?;
    }
    Ok(())
}

/// 404: the organisation does not exist, or the caller is not a member.
pub fn unknown() -> ApiError {
    ApiError::new(
        ErrorCode::NotFound,
        "You are not a member of an organisation with this id.",
    )
}
