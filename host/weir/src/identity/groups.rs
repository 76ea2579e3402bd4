//! Roles that groups of an issuer grant: the admin role, and roles in organisations. weir applies them at each sign-in.
//!
//! **Invariant:** groups change no role that a person granted. A role that a group granted has [`BY_GROUP`] as its
//! source, and the column is null for all others.

use std::collections::BTreeMap;

use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::Transaction;

use super::settings::{OrganisationRole, SignInSettings};

/// The source of a role in the database.
const BY_GROUP: &str = "group";

/// The change of a user's admin role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdminChange {
    Granted,
    Revoked,
}

/// Applies a user's groups to their roles, and revokes roles whose groups the user has lost. Returns the change of the
/// admin role, if there is one.
pub(super) async fn apply(
    database: &Database,
    user_id: &str,
    settings: &SignInSettings,
    groups: &[String],
    now: Millis,
) -> sqlx::Result<Option<AdminChange>> {
    let mut transaction = database.begin().await?;
    let is_admin = settings
        .admin_groups
        .iter()
        .any(|group| groups.contains(group));
    let changed = match is_admin {
        true => {
            sqlx::query(
                "UPDATE users SET admin_since = $1, admin_granted_by = $2 WHERE id = $3 AND admin_since IS NULL",
            )
            .bind(now.0)
            .bind(BY_GROUP)
            .bind(user_id)
            .execute(&mut transaction)
            .await?
        }
        false => {
            sqlx::query(
                "UPDATE users SET admin_since = NULL, admin_granted_by = NULL WHERE id = $1 AND admin_granted_by = $2",
            )
            .bind(user_id)
            .bind(BY_GROUP)
            .execute(&mut transaction)
            .await?
        }
    };
    let roles = roles_of(settings, groups);
    for (organisation, role) in &roles {
        set_role(&mut transaction, organisation, user_id, *role, now).await?;
    }
    let granted: Vec<String> = sqlx::query_scalar(
        "SELECT organisation_id FROM members WHERE user_id = $1 AND granted_by = $2",
    )
    .bind(user_id)
    .bind(BY_GROUP)
    .fetch_all(&mut transaction)
    .await?;
    for organisation in granted {
        if !roles.contains_key(&*organisation) {
            remove_member(&mut transaction, &organisation, user_id).await?;
        }
    }
    transaction.commit().await?;
    let change = match is_admin {
        true => AdminChange::Granted,
        false => AdminChange::Revoked,
    };
    Ok((changed.rows_affected() > 0).then_some(change))
}

/// Returns the highest role of the groups in each organisation.
fn roles_of<'a>(
    settings: &'a SignInSettings,
    groups: &[String],
) -> BTreeMap<&'a str, OrganisationRole> {
    let mut roles = BTreeMap::new();
    for mapped in &settings.roles {
        if groups.contains(&mapped.group) {
            let role = roles.entry(&*mapped.organisation).or_insert(mapped.role);
            *role = mapped.role.max(*role);
        }
    }
    roles
}

/// Adds a member, or changes the role of a member whom a group added.
async fn set_role(
    transaction: &mut Transaction,
    organisation: &str,
    user_id: &str,
    role: OrganisationRole,
    now: Millis,
) -> sqlx::Result<()> {
    let found: Option<i64> = sqlx::query_scalar(
        "SELECT created_at FROM users WHERE id = $1 AND kind = 'organisation' AND deleted_at IS NULL",
    )
    .bind(organisation)
    .fetch_optional(&mut *transaction)
    .await?;
    if found.is_none() {
        tracing::warn!(
            organisation,
            "`identity.sign_in.roles` names an organisation that does not exist"
        );
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO members (organisation_id, user_id, role, created_at, granted_by) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (organisation_id, user_id) DO UPDATE SET role = excluded.role \
         WHERE members.granted_by = excluded.granted_by",
    )
    .bind(organisation)
    .bind(user_id)
    .bind(role.name())
    .bind(now.0)
    .bind(BY_GROUP)
    .execute(transaction)
    .await
    .map(drop)
}

async fn remove_member(
    transaction: &mut Transaction,
    organisation: &str,
    user_id: &str,
) -> sqlx::Result<()> {
    sqlx::query(
        "DELETE FROM members WHERE organisation_id = $1 AND user_id = $2 AND granted_by = $3",
    )
    .bind(organisation)
    .bind(user_id)
    .bind(BY_GROUP)
    .execute(transaction)
    .await
    .map(drop)
}
