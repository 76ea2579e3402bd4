//! Organisations, members, invitations, projects and service accounts in the database.

use serde::Serialize;
use sqlx::Row;
use sqlx::any::AnyRow;
use utoipa::ToSchema;
use weir_identity::members::{OwnerCount, count_owners, revoke_keys};
use weir_identity::roles::Role;
use weir_identity::store::{lock_account, read_role};
use weir_request::content_log;
use weir_request::limits::data::DataLimits;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::Transaction;
use weir_storage::ids;

/// The maximum organisations that a user may own.
pub(super) const MAX_OWNED: i64 = 10;

/// The maximum organisations that a user may create within a day, including deleted ones: otherwise, creation and deletion
/// would be endless.
pub(super) const MAX_CREATED_A_DAY: i64 = 10;

/// The maximum members of an organisation, including service accounts.
pub(super) const MAX_MEMBERS: i64 = 1_000;

/// The maximum open invitations of an organisation.
pub(super) const MAX_INVITATIONS: i64 = 100;

/// The maximum active projects of an organisation.
pub(super) const MAX_PROJECTS: i64 = 100;

/// An organisation, as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OrganisationItem {
    /// The organisation's id, for the header `X-Weir-Account`.
    pub organisation_id: String,
    /// Display name.
    pub name: String,
    /// The plan.
    pub plan: String,
    /// The caller's role.
    pub role: Role,
    /// Limits on the providers of the organisation's requests.
    pub data_limits: DataLimits,
    /// Whether weir stores the prompts and responses of the organisation's requests, if the operator allows it. Their users
    /// and the organisation's administrators see them.
    pub content_log: bool,
    /// Time of creation.
    pub created_at: String,
}

/// A member of an organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MemberItem {
    /// The member's user id.
    pub user_id: String,
    /// `person` or `service`.
    pub kind: String,
    /// Display name.
    pub name: Option<String>,
    /// E-mail address, verified by the issuer.
    pub email: Option<String>,
    /// Role.
    pub role: Role,
    /// Time of joining.
    pub created_at: String,
}

impl MemberItem {
    /// Returns the name under which pages show the member.
    pub fn shown_name(&self) -> String {
        let name = self.name.clone().or_else(|| self.email.clone());
        name.unwrap_or_else(|| self.user_id.clone())
    }
}

/// An open invitation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct InvitationItem {
    /// The invitation's id.
    pub invitation_id: String,
    /// The invited e-mail address.
    pub email: String,
    /// The role of the new member.
    pub role: Role,
    /// The member who sent it.
    pub invited_by: String,
    /// Time of creation.
    pub created_at: String,
    /// Expiry.
    pub expires_at: String,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ProjectItem {
    /// The project's id.
    pub project_id: String,
    /// Display name.
    pub name: String,
    /// Time of creation.
    pub created_at: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberChange {
    Done,
    /// The user is not a member.
    Unknown,
    /// The organisation would have no enabled owner.
    LastOwner,
    /// A service account may not have the role.
    NotForServices,
}

/// The result of the acceptance of an invitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Acceptance {
    Joined {
        organisation_id: String,
        role: Role,
    },
    /// The code is unknown, used, revoked or expired.
    Invalid,
    /// The invitation is for another e-mail address.
    OtherEmail,
    /// The user is a member already.
    AlreadyMember,
    /// The organisation has [`MAX_MEMBERS`].
    Full,
}

pub(super) struct NewInvitation<'a> {
    pub(super) organisation_id: &'a str,
    pub(super) email: &'a str,
    pub(super) role: Role,
    pub(super) code_hash: Vec<u8>,
    pub(super) invited_by: &'a str,
    pub(super) now: Millis,
    pub(super) expires_at: Millis,
}

/// Creates an organisation with its first owner. `None` if the user owns too many, or created too many within a day.
pub(super) async fn create(
    database: &Database,
    name: &str,
    owner: &str,
    now: Millis,
) -> sqlx::Result<Option<String>> {
    let mut transaction = database.begin().await?;
    lock_account(&mut transaction, owner).await?;
    let owned: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM members m JOIN users u ON u.id = m.organisation_id \
         WHERE m.user_id = $1 AND m.role = 'owner' AND u.deleted_at IS NULL",
    )
    .bind(owner)
    .fetch_one(&mut transaction)
    .await?;
    let created: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM users WHERE created_by = $1 AND created_at > $2",
    )
    .bind(owner)
    .bind(now.plus_days(-1).0)
    .fetch_one(&mut transaction)
    .await?;
    if owned >= MAX_OWNED || created >= MAX_CREATED_A_DAY {
        return Ok(None);
    }
    let id = ids::organisation_id();
    // 0 means enabled. Nodes of the release before organisations reject the keys, because they would ignore roles and budgets.
    sqlx::query(
        "INSERT INTO users (id, kind, name, created_at, disabled_at, created_by) \
         VALUES ($1, 'organisation', $2, $3, 0, $4)",
    )
    .bind(&id)
    .bind(name)
    .bind(now.0)
    .bind(owner)
    .execute(&mut transaction)
    .await?;
    insert_member(&mut transaction, &id, owner, Role::Owner, now).await?;
    transaction.commit().await?;
    Ok(Some(id))
}

/// Returns the organisations of a user, oldest first.
pub async fn list_of_user(
    database: &Database,
    user_id: &str,
) -> sqlx::Result<Vec<OrganisationItem>> {
    let rows = sqlx::query(
        "SELECT u.id, u.name, u.plan, u.created_at, u.data_limits, u.content_log, m.role FROM members m \
         JOIN users u ON u.id = m.organisation_id \
         WHERE m.user_id = $1 AND u.deleted_at IS NULL ORDER BY m.organisation_id",
    )
    .bind(user_id)
    .fetch_all(database.reader())
    .await?;
    rows.iter().map(read_organisation).collect()
}

/// Returns an organisation of a user.
pub(super) async fn find(
    database: &Database,
    organisation_id: &str,
    user_id: &str,
) -> sqlx::Result<Option<OrganisationItem>> {
    let row = sqlx::query(
        "SELECT u.id, u.name, u.plan, u.created_at, u.data_limits, u.content_log, m.role FROM members m \
         JOIN users u ON u.id = m.organisation_id \
         WHERE m.organisation_id = $1 AND m.user_id = $2 AND u.deleted_at IS NULL",
    )
    .bind(organisation_id)
    .bind(user_id)
    .fetch_optional(database.reader())
    .await?;
    row.as_ref().map(read_organisation).transpose()
}

fn read_organisation(row: &AnyRow) -> sqlx::Result<OrganisationItem> {
    Ok(OrganisationItem {
        organisation_id: row.try_get("id")?,
        name: row
            .try_get::<Option<String>, _>("name")?
            .unwrap_or_default(),
        plan: row.try_get("plan")?,
        role: read_role(&row.try_get::<String, _>("role")?)?,
        data_limits: DataLimits::read(row.try_get("data_limits")?)?,
        content_log: row.try_get::<i64, _>("content_log")? == 1,
        created_at: Millis(row.try_get("created_at")?).iso(),
    })
}

pub(super) async fn rename(database: &Database, id: &str, name: &str) -> sqlx::Result<()> {
    sqlx::query("UPDATE users SET name = $1 WHERE id = $2")
        .bind(name)
        .bind(id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Marks an organisation as deleted, and disables it and its keys.
pub(super) async fn delete(database: &Database, id: &str, now: Millis) -> sqlx::Result<()> {
    let mut transaction = database.begin().await?;
    sqlx::query(
        "UPDATE users SET deleted_at = $1, disabled_at = COALESCE(NULLIF(disabled_at, 0), $1) \
         WHERE id = $2",
    )
    .bind(now.0)
    .bind(id)
    .execute(&mut transaction)
    .await?;
    sqlx::query("UPDATE api_keys SET disabled_at = $1 WHERE user_id = $2 AND disabled_at IS NULL")
        .bind(now.0)
        .bind(id)
        .execute(&mut transaction)
        .await?;
    sqlx::query(
        "UPDATE invitations SET ended_at = $1 WHERE organisation_id = $2 AND ended_at IS NULL",
    )
    .bind(now.0)
    .bind(id)
    .execute(&mut transaction)
    .await?;
    transaction.commit().await
}

/// Returns the members of an organisation, oldest first.
pub async fn list_members(
    database: &Database,
    organisation_id: &str,
) -> sqlx::Result<Vec<MemberItem>> {
    list(database, organisation_id, "u.kind IN ('person', 'service')").await
}

/// Returns the service accounts of an organisation, oldest first.
pub(super) async fn list_service_accounts(
    database: &Database,
    organisation_id: &str,
) -> sqlx::Result<Vec<MemberItem>> {
    list(database, organisation_id, "u.kind = 'service'").await
}

async fn list(
    database: &Database,
    organisation_id: &str,
    condition: &str,
) -> sqlx::Result<Vec<MemberItem>> {
    let sql = format!(
        "SELECT u.id, u.kind, u.name, u.email, m.role, m.created_at FROM members m \
         JOIN users u ON u.id = m.user_id WHERE m.organisation_id = $1 AND {condition} \
         ORDER BY m.created_at, u.id"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(organisation_id)
        .fetch_all(database.reader())
        .await?;
    rows.iter()
        .map(|row| {
            Ok(MemberItem {
                user_id: row.try_get("id")?,
                kind: row.try_get("kind")?,
                name: row.try_get("name")?,
                email: row.try_get("email")?,
                role: read_role(&row.try_get::<String, _>("role")?)?,
                created_at: Millis(row.try_get("created_at")?).iso(),
            })
        })
        .collect()
}

/// Returns a member's role.
pub(super) async fn role_of(
    database: &Database,
    organisation_id: &str,
    user_id: &str,
) -> sqlx::Result<Option<Role>> {
    let role: Option<String> =
        sqlx::query_scalar("SELECT role FROM members WHERE organisation_id = $1 AND user_id = $2")
            .bind(organisation_id)
            .bind(user_id)
            .fetch_optional(database.reader())
            .await?;
    role.as_deref().map(read_role).transpose()
}

/// Changes a member's role, which groups of an issuer then leave alone.
pub(super) async fn set_role(
    database: &Database,
    organisation_id: &str,
    user_id: &str,
    role: Role,
) -> sqlx::Result<MemberChange> {
    let mut transaction = database.begin().await?;
    lock_account(&mut transaction, organisation_id).await?;
    let kind: Option<String> = sqlx::query_scalar("SELECT kind FROM users WHERE id = $1")
        .bind(user_id)
        .fetch_optional(&mut transaction)
        .await?;
    if kind.as_deref() == Some("service") && !role.suits_service_accounts() {
        return Ok(MemberChange::NotForServices);
    }
    let before = count_owners(&mut transaction, organisation_id).await?;
    let changed =
        sqlx::query("UPDATE members SET role = $1, granted_by = NULL WHERE organisation_id = $2 AND user_id = $3")
            .bind(role.name())
            .bind(organisation_id)
            .bind(user_id)
            .execute(&mut transaction)
            .await?;
    let changed = changed.rows_affected();
    end_change(transaction, organisation_id, before, changed).await
}

/// Ends a membership, and revokes the member's keys in the organisation.
pub(super) async fn remove_member(
    database: &Database,
    organisation_id: &str,
    user_id: &str,
    now: Millis,
) -> sqlx::Result<MemberChange> {
    let mut transaction = database.begin().await?;
    lock_account(&mut transaction, organisation_id).await?;
    let before = count_owners(&mut transaction, organisation_id).await?;
    let removed = sqlx::query("DELETE FROM members WHERE organisation_id = $1 AND user_id = $2")
        .bind(organisation_id)
        .bind(user_id)
        .execute(&mut transaction)
        .await?;
    revoke_keys(&mut transaction, organisation_id, user_id, now).await?;
    let removed = removed.rows_affected();
    end_change(transaction, organisation_id, before, removed).await
}

/// Makes another member the owner; the former owner becomes an administrator.
pub(super) async fn transfer(
    database: &Database,
    organisation_id: &str,
    from: &str,
    to: &str,
) -> sqlx::Result<MemberChange> {
    let mut transaction = database.begin().await?;
    lock_account(&mut transaction, organisation_id).await?;
    let before = count_owners(&mut transaction, organisation_id).await?;
    let mut changed = 0;
    for (user_id, role) in [(to, Role::Owner), (from, Role::Admin)] {
        let result = sqlx::query(
            "UPDATE members SET role = $1, granted_by = NULL WHERE organisation_id = $2 AND user_id = $3 \
             AND EXISTS (SELECT 1 FROM users u WHERE u.id = members.user_id AND u.kind = 'person')",
        )
        .bind(role.name())
        .bind(organisation_id)
        .bind(user_id)
        .execute(&mut transaction)
        .await?;
        changed += result.rows_affected();
    }
    let changed = if changed == 2 { 1 } else { 0 };
    end_change(transaction, organisation_id, before, changed).await
}

/// Commits a change of members, unless nothing changed or no enabled owner is left.
async fn end_change(
    mut transaction: Transaction,
    organisation_id: &str,
    before: OwnerCount,
    changed: u64,
) -> sqlx::Result<MemberChange> {
    if changed == 0 {
        return Ok(MemberChange::Unknown);
    }
    let after = count_owners(&mut transaction, organisation_id).await?;
    if before.has_lost_last(after) {
        return Ok(MemberChange::LastOwner);
    }
    transaction.commit().await?;
    Ok(MemberChange::Done)
}

/// Stores an invitation, which replaces an open one for the same address. `None` if there are too many.
pub(super) async fn invite(
    database: &Database,
    new: &NewInvitation<'_>,
) -> sqlx::Result<Option<String>> {
    let mut transaction = database.begin().await?;
    lock_account(&mut transaction, new.organisation_id).await?;
    sqlx::query(
        "UPDATE invitations SET ended_at = $1 \
         WHERE organisation_id = $2 AND ended_at IS NULL AND (email = $3 OR expires_at <= $1)",
    )
    .bind(new.now.0)
    .bind(new.organisation_id)
    .bind(new.email)
    .execute(&mut transaction)
    .await?;
    let open: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM invitations \
         WHERE organisation_id = $1 AND ended_at IS NULL",
    )
    .bind(new.organisation_id)
    .fetch_one(&mut transaction)
    .await?;
    if open >= MAX_INVITATIONS {
        return Ok(None);
    }
    let id = ids::invitation_id();
    sqlx::query(
        "INSERT INTO invitations (id, organisation_id, email, role, code_hash, invited_by, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(&id)
    .bind(new.organisation_id)
    .bind(new.email)
    .bind(new.role.name())
    .bind(new.code_hash.clone())
    .bind(new.invited_by)
    .bind(new.now.0)
    .bind(new.expires_at.0)
    .execute(&mut transaction)
    .await?;
    transaction.commit().await?;
    Ok(Some(id))
}

/// Returns the open invitations of an organisation, oldest first.
pub async fn find_invitations(
    database: &Database,
    organisation_id: &str,
    now: Millis,
) -> sqlx::Result<Vec<InvitationItem>> {
    let rows = sqlx::query(
        "SELECT id, email, role, invited_by, created_at, expires_at FROM invitations \
         WHERE organisation_id = $1 AND ended_at IS NULL AND expires_at > $2 ORDER BY created_at, id",
    )
    .bind(organisation_id)
    .bind(now.0)
    .fetch_all(database.reader())
    .await?;
    rows.iter()
        .map(|row| {
            Ok(InvitationItem {
                invitation_id: row.try_get("id")?,
                email: row.try_get("email")?,
                role: read_role(&row.try_get::<String, _>("role")?)?,
                invited_by: row.try_get("invited_by")?,
                created_at: Millis(row.try_get("created_at")?).iso(),
                expires_at: Millis(row.try_get("expires_at")?).iso(),
            })
        })
        .collect()
}

/// Revokes an open invitation. Returns whether there was one.
pub(super) async fn revoke_invitation(
    database: &Database,
    organisation_id: &str,
    invitation_id: &str,
    now: Millis,
) -> sqlx::Result<bool> {
    let revoked = sqlx::query(
        "UPDATE invitations SET ended_at = $1 \
         WHERE id = $2 AND organisation_id = $3 AND ended_at IS NULL",
    )
    .bind(now.0)
    .bind(invitation_id)
    .bind(organisation_id)
    .execute(database.writer())
    .await?;
    Ok(revoked.rows_affected() > 0)
}

/// Makes a user with a verified e-mail address a member, by the hash of an invitation's code.
pub(super) async fn accept_invitation(
    database: &Database,
    code_hash: Vec<u8>,
    user_id: &str,
    email: Option<&str>,
    now: Millis,
) -> sqlx::Result<Acceptance> {
    let mut transaction = database.begin().await?;
    // The statement locks the row on both databases, so that a concurrent acceptance waits.
    sqlx::query("UPDATE invitations SET ended_at = ended_at WHERE code_hash = $1")
        .bind(code_hash.clone())
        .execute(&mut transaction)
        .await?;
    let found = sqlx::query(
        "SELECT i.id, i.organisation_id, i.email, i.role FROM invitations i \
         JOIN users u ON u.id = i.organisation_id \
         WHERE i.code_hash = $1 AND i.ended_at IS NULL AND i.expires_at > $2 AND u.deleted_at IS NULL",
    )
    .bind(code_hash)
    .bind(now.0)
    .fetch_optional(&mut transaction)
    .await?;
    let Some(found) = found else {
        return Ok(Acceptance::Invalid);
    };
    if email != Some(&*found.try_get::<String, _>("email")?) {
        return Ok(Acceptance::OtherEmail);
    }
    let organisation_id: String = found.try_get("organisation_id")?;
    let role = read_role(&found.try_get::<String, _>("role")?)?;
    lock_account(&mut transaction, &organisation_id).await?;
    let counts: (i64, i64) = sqlx::query_as(
        "SELECT CAST(COUNT(*) AS BIGINT), \
         CAST(COALESCE(SUM(CASE WHEN user_id = $2 THEN 1 ELSE 0 END), 0) AS BIGINT) \
         FROM members WHERE organisation_id = $1",
    )
    .bind(&organisation_id)
    .bind(user_id)
    .fetch_one(&mut transaction)
    .await?;
    match counts {
        (_, known) if known > 0 => return Ok(Acceptance::AlreadyMember),
        (all, _) if all >= MAX_MEMBERS => return Ok(Acceptance::Full),
        _ => {}
    }
    sqlx::query("UPDATE invitations SET ended_at = $1, accepted_by = $2 WHERE id = $3")
        .bind(now.0)
        .bind(user_id)
        .bind(found.try_get::<String, _>("id")?)
        .execute(&mut transaction)
        .await?;
    insert_member(&mut transaction, &organisation_id, user_id, role, now).await?;
    transaction.commit().await?;
    Ok(Acceptance::Joined {
        organisation_id,
        role,
    })
}

/// Returns the active projects of an organisation, oldest first.
pub async fn list_projects(
    database: &Database,
    organisation_id: &str,
) -> sqlx::Result<Vec<ProjectItem>> {
    let rows = sqlx::query(
        "SELECT id, name, created_at FROM projects \
         WHERE organisation_id = $1 AND archived_at IS NULL ORDER BY created_at, id",
    )
    .bind(organisation_id)
    .fetch_all(database.reader())
    .await?;
    rows.iter()
        .map(|row| {
            Ok(ProjectItem {
                project_id: row.try_get("id")?,
                name: row.try_get("name")?,
                created_at: Millis(row.try_get("created_at")?).iso(),
            })
        })
        .collect()
}

/// Creates a project. `None` if there are too many.
pub(super) async fn create_project(
    database: &Database,
    organisation_id: &str,
    name: &str,
    now: Millis,
) -> sqlx::Result<Option<ProjectItem>> {
    let mut transaction = database.begin().await?;
    lock_account(&mut transaction, organisation_id).await?;
    let active: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM projects \
         WHERE organisation_id = $1 AND archived_at IS NULL",
    )
    .bind(organisation_id)
    .fetch_one(&mut transaction)
    .await?;
    if active >= MAX_PROJECTS {
        return Ok(None);
    }
    let project_id = ids::project_id();
    sqlx::query(
        "INSERT INTO projects (id, organisation_id, name, created_at) VALUES ($1, $2, $3, $4)",
    )
    .bind(&project_id)
    .bind(organisation_id)
    .bind(name)
    .bind(now.0)
    .execute(&mut transaction)
    .await?;
    transaction.commit().await?;
    Ok(Some(ProjectItem {
        project_id,
        name: name.to_owned(),
        created_at: now.iso(),
    }))
}

pub(super) async fn keys_of_project(
    database: &Database,
    project_id: &str,
) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar("SELECT id FROM api_keys WHERE project_id = $1 AND disabled_at IS NULL")
        .bind(project_id)
        .fetch_all(database.reader())
        .await
}

/// Archives a project, and revokes its keys. Returns whether there was one.
pub(super) async fn archive_project(
    database: &Database,
    organisation_id: &str,
    project_id: &str,
    now: Millis,
) -> sqlx::Result<bool> {
    let mut transaction = database.begin().await?;
    let archived = sqlx::query(
        "UPDATE projects SET archived_at = $1 \
         WHERE id = $2 AND organisation_id = $3 AND archived_at IS NULL",
    )
    .bind(now.0)
    .bind(project_id)
    .bind(organisation_id)
    .execute(&mut transaction)
    .await?;
    if archived.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query(
        "UPDATE api_keys SET disabled_at = $1 WHERE project_id = $2 AND disabled_at IS NULL",
    )
    .bind(now.0)
    .bind(project_id)
    .execute(&mut transaction)
    .await?;
    content_log::store::delete_of_project(&mut transaction, project_id).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Creates a service account. `None` if the organisation has too many members.
pub(super) async fn create_service_account(
    database: &Database,
    organisation_id: &str,
    name: &str,
    role: Role,
    now: Millis,
) -> sqlx::Result<Option<MemberItem>> {
    let mut transaction = database.begin().await?;
    lock_account(&mut transaction, organisation_id).await?;
    let members: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM members WHERE organisation_id = $1",
    )
    .bind(organisation_id)
    .fetch_one(&mut transaction)
    .await?;
    if members >= MAX_MEMBERS {
        return Ok(None);
    }
    let user_id = ids::service_account_id();
    sqlx::query("INSERT INTO users (id, kind, name, created_at) VALUES ($1, 'service', $2, $3)")
        .bind(&user_id)
        .bind(name)
        .bind(now.0)
        .execute(&mut transaction)
        .await?;
    insert_member(&mut transaction, organisation_id, &user_id, role, now).await?;
    transaction.commit().await?;
    Ok(Some(MemberItem {
        user_id,
        kind: "service".to_owned(),
        name: Some(name.to_owned()),
        email: None,
        role,
        created_at: now.iso(),
    }))
}

async fn insert_member(
    transaction: &mut Transaction,
    organisation_id: &str,
    user_id: &str,
    role: Role,
    now: Millis,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO members (organisation_id, user_id, role, created_at, kind) \
         VALUES ($1, $2, $3, $4, (SELECT kind FROM users WHERE id = $2))",
    )
    .bind(organisation_id)
    .bind(user_id)
    .bind(role.name())
    .bind(now.0)
    .execute(transaction)
    .await
    .map(drop)
}
