//! Roles that groups of an issuer grant: the admin role, and roles in organisations. weir applies them at each sign-in, and
//! whenever the issuer's directory changes them.
//!
//! **Invariant:** groups change no role that a person granted. A role that a group granted has [`BY_GROUP`] as its
//! source, and the column is null for all others. **Invariant:** an organisation keeps its last enabled owner, and the
//! keys of a member end with the membership, as everywhere else.

use std::collections::BTreeMap;

use sqlx::Row;
use weir_errors::ApiError;
use weir_request::audit::{Actor, AuditEvent};
use weir_request::node::Core;
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::errors::store_failed;
use super::members::{count_owners, drop_cached_keys, revoke_keys};
use super::roles::Role;
use super::settings::SignInSettings;
use super::store::{lock_account, read_role};

/// The source of a role in the database.
const BY_GROUP: &str = "group";

/// Applies a user's groups to their roles, and revokes roles whose groups the user has lost.
pub(super) async fn apply(
    core: &Core,
    user_id: &str,
    settings: &SignInSettings,
    groups: &[String],
) -> Result<(), ApiError> {
    let (database, now) = (&core.database, core.clock.now());
    let by = Actor::issuer(&settings.issuer);
    let is_admin = settings
        .admin_groups
        .iter()
        .any(|group| groups.contains(group));
    let changed = set_admin(database, user_id, is_admin, now).await;
    if changed.map_err(store_failed)? {
        let user_id = user_id.to_owned();
        let event = match is_admin {
            true => AuditEvent::AdminGranted { user_id },
            false => AuditEvent::AdminRevoked { user_id },
        };
        core.audit.record_by(&by, event);
    }
    let wanted = roles_of(settings, groups);
    let granted = granted_roles(database, user_id).await;
    let granted = granted.map_err(store_failed)?;
    for (organisation, role) in &wanted {
        if granted.get(*organisation) != Some(role) {
            drop_cached_keys(core, organisation, user_id).await?;
            let set = set_role(database, organisation, user_id, *role, now).await;
            if set.map_err(store_failed)? {
                let subject = format!("{user_id}: {}", role.name());
                record(core, &by, "member.role_changed", organisation, subject);
            }
        }
    }
    let lost = granted
        .keys()
        .filter(|organisation| !wanted.contains_key(&***organisation));
    for organisation in lost {
        drop_cached_keys(core, organisation, user_id).await?;
        let removed = remove_member(database, organisation, user_id, now).await;
        if removed.map_err(store_failed)? {
            record(
                core,
                &by,
                "member.removed",
                organisation,
                user_id.to_owned(),
            );
        }
    }
    Ok(())
}

/// Applies a user's groups in the issuer's directory to their roles. If another request changes the groups meanwhile, the
/// last one counts.
pub async fn apply_of_directory(
    core: &Core,
    user_id: &str,
    settings: &SignInSettings,
) -> Result<(), ApiError> {
    let mut groups = directory_groups(core, user_id).await?;
    loop {
        apply(core, user_id, settings, &groups).await?;
        let current = directory_groups(core, user_id).await?;
        if current == groups {
            return Ok(());
        }
        groups = current;
    }
}

/// Returns the display names of a user's groups in the issuer's directory.
async fn directory_groups(core: &Core, user_id: &str) -> Result<Vec<String>, ApiError> {
    let documents: Vec<String> = sqlx::query_scalar(
        "SELECT r.document FROM directory_members m JOIN directory_resources r ON r.id = m.group_id \
         WHERE m.user_id = $1 ORDER BY r.id",
    )
    .bind(user_id)
    .fetch_all(core.database.writer())
    .await
    .map_err(store_failed)?;
    let names = documents.iter().filter_map(|document| {
        let document: serde_json::Value = serde_json::from_str(document).ok()?;
        document["displayName"].as_str().map(str::to_owned)
    });
    Ok(names.collect())
}

fn record(core: &Core, by: &Actor, kind: &'static str, organisation: &str, subject: String) {
    let event = AuditEvent::OrganisationChanged {
        kind,
        organisation_id: organisation.to_owned(),
        subject,
    };
    core.audit.record_by(by, event);
}

/// Grants or revokes the admin role, unless a person has granted it. Returns whether it has changed.
async fn set_admin(
    database: &Database,
    user_id: &str,
    is_admin: bool,
    now: Millis,
) -> sqlx::Result<bool> {
    let changed = match is_admin {
        true => sqlx::query(
            "UPDATE users SET admin_since = $1, admin_granted_by = $2 WHERE id = $3 AND admin_since IS NULL",
        )
        .bind(now.0)
        .bind(BY_GROUP)
        .bind(user_id),
        false => sqlx::query(
            "UPDATE users SET admin_since = NULL, admin_granted_by = NULL WHERE id = $1 AND admin_granted_by = $2",
        )
        .bind(user_id)
        .bind(BY_GROUP),
    };
    let changed = changed.execute(database.writer()).await?;
    Ok(changed.rows_affected() > 0)
}

/// Returns the highest role of the groups in each organisation.
fn roles_of<'a>(settings: &'a SignInSettings, groups: &[String]) -> BTreeMap<&'a str, Role> {
    let mut roles = BTreeMap::new();
    for mapped in &settings.roles {
        if groups.contains(&mapped.group) {
            let role = roles.entry(&*mapped.organisation).or_insert(mapped.role);
            // Roles are in order, the highest first.
            *role = mapped.role.min(*role);
        }
    }
    roles
}

/// Returns the roles that groups have granted a user, by organisation.
async fn granted_roles(database: &Database, user_id: &str) -> sqlx::Result<BTreeMap<String, Role>> {
    let rows = sqlx::query(
        "SELECT organisation_id, role FROM members WHERE user_id = $1 AND granted_by = $2",
    )
    .bind(user_id)
    .bind(BY_GROUP)
    .fetch_all(database.reader())
    .await?;
    rows.iter()
        .map(|row| {
            let role = read_role(&row.try_get::<String, _>("role")?)?;
            Ok((row.try_get("organisation_id")?, role))
        })
        .collect()
}

/// Adds a member, or changes the role of a member whom a group added. Returns whether there is a change.
async fn set_role(
    database: &Database,
    organisation: &str,
    user_id: &str,
    role: Role,
    now: Millis,
) -> sqlx::Result<bool> {
    let mut transaction = database.begin().await?;
    // The statement locks the row, on both databases, so that concurrent changes of members wait.
    let found = sqlx::query(
        "UPDATE users SET id = id WHERE id = $1 AND kind = 'organisation' AND deleted_at IS NULL",
    )
    .bind(organisation)
    .execute(&mut transaction)
    .await?;
    if found.rows_affected() == 0 {
        tracing::warn!(
            organisation,
            "`identity.sign_in.roles` names an organisation that does not exist"
        );
        return Ok(false);
    }
    let before = count_owners(&mut transaction, organisation).await?;
    let changed = sqlx::query(
        "INSERT INTO members (organisation_id, user_id, role, created_at, granted_by, kind) \
         VALUES ($1, $2, $3, $4, $5, (SELECT kind FROM users WHERE id = $2)) \
         ON CONFLICT (organisation_id, user_id) DO UPDATE SET role = excluded.role \
         WHERE members.granted_by = excluded.granted_by",
    )
    .bind(organisation)
    .bind(user_id)
    .bind(role.name())
    .bind(now.0)
    .bind(BY_GROUP)
    .execute(&mut transaction)
    .await?;
    let after = count_owners(&mut transaction, organisation).await?;
    if before.has_lost_last(after) {
        return Ok(false);
    }
    transaction.commit().await?;
    Ok(changed.rows_affected() > 0)
}

/// Ends a membership that a group granted, and revokes the member's keys in the organisation. Returns whether it has
/// ended.
async fn remove_member(
    database: &Database,
    organisation: &str,
    user_id: &str,
    now: Millis,
) -> sqlx::Result<bool> {
    let mut transaction = database.begin().await?;
    lock_account(&mut transaction, organisation).await?;
    let before = count_owners(&mut transaction, organisation).await?;
    let removed = sqlx::query(
        "DELETE FROM members WHERE organisation_id = $1 AND user_id = $2 AND granted_by = $3",
    )
    .bind(organisation)
    .bind(user_id)
    .bind(BY_GROUP)
    .execute(&mut transaction)
    .await?;
    revoke_keys(&mut transaction, organisation, user_id, now).await?;
    let after = count_owners(&mut transaction, organisation).await?;
    if removed.rows_affected() == 0 || before.has_lost_last(after) {
        return Ok(false);
    }
    transaction.commit().await?;
    Ok(true)
}
