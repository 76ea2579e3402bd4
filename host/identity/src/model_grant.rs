//! The rights of stored work: tasks, swarms and the model calls of executors.

use sqlx::Row;
use sqlx::any::AnyRow;
use weir_ledger::plans::plan_ends_at;
use weir_ledger::{BudgetPart, Plan};
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::limits::{LimitsOwner, RequestLimits, limits_owner};
use super::principal::{Principal, PrincipalRefusal};
use super::roles::Role;
use super::store::{read_models, read_role};
use super::stored_plan::StoredPlan;

/// The rights of stored work at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelGrant {
    /// The account's plan.
    pub plan: Plan,
    /// The models that the work's key may use; all if empty.
    pub models: Vec<String>,
    /// The account for whose limits the work counts.
    pub limits: RequestLimits,
}

/// Returns the rights of stored work of an account, whose parts name its member, key and project.
pub async fn find_grant(
    database: &Database,
    account: &str,
    parts: &[BudgetPart],
    now: Millis,
) -> sqlx::Result<Result<ModelGrant, PrincipalRefusal>> {
    let (mut member, mut key, mut project) = (None, None, None);
    for part in parts {
        match part {
            BudgetPart::Member(id) => member = Some(&**id),
            BudgetPart::Key(id) => key = Some(&**id),
            BudgetPart::Project(id) => project = Some(&**id),
            _ => {}
        }
    }
    let text = format!(
        "SELECT u.plan, {} AS plan_ends_at, u.deleted_at, COALESCE(NULLIF(u.disabled_at, 0), h.disabled_at) AS disabled_at, m.role, \
         k.models, k.expires_at, k.disabled_at AS revoked_at, p.id AS project_id, p.archived_at, {} \
         FROM users u LEFT JOIN users h ON h.id = $2 \
         LEFT JOIN members m ON m.organisation_id = u.id AND m.user_id = $2 \
         LEFT JOIN api_keys k ON k.id = $3 AND k.user_id = u.id \
         LEFT JOIN projects p ON p.id = $4 AND p.organisation_id = u.id WHERE u.id = $1",
        plan_ends_at("u.id"),
        limits_owner()
    );
    let row = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(account)
        .bind(member)
        .bind(key)
        .bind(project)
        .fetch_optional(database.reader())
        .await?;
    let Some(row) = row else {
        return Ok(Err(PrincipalRefusal::Ended));
    };
    let is_set = |column| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(column)?.is_some());
    let role = match member {
        Some(_) => row.try_get::<Option<String>, _>("role")?,
        // Work without a member is the account's own.
        None => Some(Role::Owner.name().to_owned()),
    };
    let is_gone = is_set("deleted_at")? || role.is_none();
    let has_key_ended = key.is_some() && !is_live(&row, now)?;
    let is_project_closed = project.is_some()
        && (row.try_get::<Option<String>, _>("project_id")?.is_none() || is_set("archived_at")?);
    let principal = Principal {
        role: role.as_deref().map_or(Ok(Role::Viewer), read_role)?,
        is_disabled: is_set("disabled_at")?,
        has_ended: is_gone || has_key_ended || is_project_closed,
    };
    if let Err(refusal) = principal.may_use_models() {
        return Ok(Err(refusal));
    }
    Ok(Ok(ModelGrant {
        plan: StoredPlan::read(&row)?.at(now),
        limits: LimitsOwner::read(&row, account)?.at(now),
        models: read_models(&row)?,
    }))
}

/// Whether the row has a key that is neither expired nor revoked.
fn is_live(row: &AnyRow, now: Millis) -> sqlx::Result<bool> {
    let expires_at: Option<i64> = row.try_get("expires_at")?;
    let revoked_at: Option<i64> = row.try_get("revoked_at")?;
    Ok(revoked_at.is_none() && expires_at.is_some_and(|expires_at| now.0 < expires_at))
}
