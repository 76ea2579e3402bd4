//! `/organisations/{organisation_id}/members`: list, change and remove members; leave.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::members::drop_cached_keys;
use weir_identity::roles::{Permission, Role};
use weir_request::small_body::SmallBody;

use super::store::{self, MemberChange, MemberItem};
use super::{MemberCaller, OrganisationParts, failed};

/// The members of an organisation.
#[derive(Serialize, ToSchema)]
struct MemberList {
    /// Members, oldest first.
    members: Vec<MemberItem>,
}

/// The body that changes a member's role.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleRequest {
    /// The new role.
    role: Role,
}

/// `GET /organisations/{organisation_id}/members`: lists the members.
#[utoipa::path(
    get, path = "/organisations/{organisation_id}/members", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    responses((status = 200, body = MemberList), (status = 404, description = "`NOT_FOUND`: you are not a member.")),
)]
pub async fn list_members(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
) -> Result<Json<Value>, ApiError> {
    let members = store::list_members(&parts.core.database, &caller.organisation_id).await;
    let members = members.map_err(failed)?;
    Ok(Json(json!(MemberList { members })))
}

/// `PATCH /organisations/{organisation_id}/members/{user_id}`: changes a member's role. It applies to their keys at
/// once.
#[utoipa::path(
    patch, path = "/organisations/{organisation_id}/members/{user_id}", tag = "organisations",
    params(
        ("organisation_id" = String, Path, description = "The organisation's id."),
        ("user_id" = String, Path, description = "The member's user id."),
    ),
    request_body = RoleRequest,
    responses(
        (status = 200, body = MemberList),
        (status = 400, description = "`INVALID_REQUEST`: a service account is a member or a viewer."),
        (status = 403, description = "`FORBIDDEN`: only owners name and change owners."),
        (status = 404, description = "`NOT_FOUND`: the user is not a member."),
        (status = 409, description = "`LAST_OWNER`: an organisation needs an owner."),
    ),
)]
pub async fn set_member_role(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    Path((_, user_id)): Path<(String, String)>,
    SmallBody(RoleRequest { role }): SmallBody<RoleRequest>,
) -> Result<Json<Value>, ApiError> {
    change_role(&parts, &caller, &user_id, role).await?;
    list_members(State(parts), caller).await
}

/// Changes a member's role. It applies to their keys at once.
pub async fn change_role(
    parts: &OrganisationParts,
    caller: &MemberCaller,
    user_id: &str,
    role: Role,
) -> Result<(), ApiError> {
    require_rank(parts, caller, user_id, Some(role)).await?;
    let (core, id) = (&parts.core, &caller.organisation_id);
    drop_cached_keys(core, id, user_id).await?;
    let changed = store::set_role(&core.database, id, user_id, role).await;
    change_failed(changed.map_err(failed)?)?;
    let subject = format!("{user_id}: {}", role.name());
    caller.record(core, "member.role_changed", subject);
    Ok(())
}

/// `DELETE /organisations/{organisation_id}/members/{user_id}`: removes a member, or leaves the organisation. The
/// member's keys end at once.
#[utoipa::path(
    delete, path = "/organisations/{organisation_id}/members/{user_id}", tag = "organisations",
    params(
        ("organisation_id" = String, Path, description = "The organisation's id."),
        ("user_id" = String, Path, description = "The member's user id."),
    ),
    responses(
        (status = 204, description = "The membership and the member's keys have ended."),
        (status = 403, description = "`FORBIDDEN`: your role does not allow it."),
        (status = 404, description = "`NOT_FOUND`: the user is not a member."),
        (status = 409, description = "`LAST_OWNER`: an organisation needs an owner."),
    ),
)]
pub async fn remove_member(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    Path((_, user_id)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    remove(&parts, &caller, &user_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a member; a member may always remove themselves.
pub async fn remove(
    parts: &OrganisationParts,
    caller: &MemberCaller,
    user_id: &str,
) -> Result<(), ApiError> {
    if user_id != caller.user_id {
        caller.role.require(Permission::Manage)?;
        require_rank(parts, caller, user_id, None).await?;
    }
    let (core, id) = (&parts.core, &caller.organisation_id);
    drop_cached_keys(core, id, user_id).await?;
    let removed = store::remove_member(&core.database, id, user_id, core.clock.now()).await;
    change_failed(removed.map_err(failed)?)?;
    caller.record(core, "member.removed", user_id);
    Ok(())
}

/// Refuses a change of an owner, or to an owner, by a member who is not one.
async fn require_rank(
    parts: &OrganisationParts,
    caller: &MemberCaller,
    user_id: &str,
    to: Option<Role>,
) -> Result<(), ApiError> {
    let from = store::role_of(&parts.core.database, &caller.organisation_id, user_id).await;
    let from = from.map_err(failed)?.ok_or_else(no_such_member)?;
    if caller.role.may_assign(from) && to.is_none_or(|to| caller.role.may_assign(to)) {
        return Ok(());
    }
    let what = "Only an owner may name, change or remove an owner.";
    Err(ApiError::new(ErrorCode::Forbidden, what).with_no_retry())
}

/// Returns the error of a change of members that was not made.
pub(super) fn change_failed(change: MemberChange) -> Result<(), ApiError> {
    match change {
        MemberChange::Done => Ok(()),
        MemberChange::Unknown => Err(no_such_member()),
        MemberChange::LastOwner => Err(ApiError::new(
            ErrorCode::LastOwner,
            "An organisation needs an enabled owner; transfer the ownership first.",
        )
        .with_no_retry()),
        MemberChange::NotForServices => Err(ApiError::invalid_request(
            "role",
            "A service account is a member or a viewer.",
        )),
    }
}

fn no_such_member() -> ApiError {
    ApiError::new(
        ErrorCode::NotFound,
        "The organisation has no member with this id.",
    )
    .with_param("user_id")
}
