//! `/organisations/{organisation_id}/service-accounts`: members without a person, which only hold keys.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::members::has_service_account;
use weir_identity::roles::Role;
use weir_request::small_body::SmallBody;

use super::store::{self, MAX_MEMBERS, MemberItem};
use super::{MemberCaller, OrganisationParts, failed, members, read_name, too_many};

/// The service accounts of an organisation.
#[derive(Serialize, ToSchema)]
struct ServiceAccountList {
    /// Service accounts, oldest first.
    service_accounts: Vec<MemberItem>,
}

/// The body that creates a service account.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceAccountRequest {
    /// Display name.
    #[schema(
        min_length = 1,
        max_length = 100,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$"
    )]
    name: String,
    /// The rights of its keys.
    #[serde(default)]
    role: ServiceAccountRole,
}

/// A role of a service account. It only holds keys, so it needs no role that manages the organisation.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ServiceAccountRole {
    /// Uses models.
    #[default]
    Member,
    /// Reads only.
    Viewer,
}

impl From<ServiceAccountRole> for Role {
    fn from(role: ServiceAccountRole) -> Self {
        match role {
            ServiceAccountRole::Member => Self::Member,
            ServiceAccountRole::Viewer => Self::Viewer,
        }
    }
}

/// `GET /organisations/{organisation_id}/service-accounts`: lists the service accounts.
#[utoipa::path(
    get, path = "/organisations/{organisation_id}/service-accounts", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    responses((status = 200, body = ServiceAccountList), (status = 404, description = "`NOT_FOUND`: you are not a member.")),
)]
pub async fn list_service_accounts(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
) -> Result<Json<Value>, ApiError> {
    let database = &parts.core.database;
    let found = store::list_service_accounts(database, &caller.organisation_id).await;
    let service_accounts = found.map_err(failed)?;
    Ok(Json(json!(ServiceAccountList { service_accounts })))
}

/// `POST /organisations/{organisation_id}/service-accounts`: creates a service account. `POST /api-keys` with
/// `service_account_id` makes its keys.
#[utoipa::path(
    post, path = "/organisations/{organisation_id}/service-accounts", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    request_body = ServiceAccountRequest,
    responses(
        (status = 201, body = MemberItem),
        (status = 404, description = "`NOT_FOUND`: you are not a member."),
        (status = 429, description = "`ORGANISATION_LIMIT_REACHED`: an organisation has at most 1000 members."),
    ),
)]
pub async fn create_service_account(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    SmallBody(asked): SmallBody<ServiceAccountRequest>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let name = read_name(&asked.name)?;
    let (database, now) = (&parts.core.database, parts.core.clock.now());
    let id = &caller.organisation_id;
    let made = store::create_service_account(database, id, name, asked.role.into(), now).await;
    let made = made.map_err(failed)?.ok_or_else(|| {
        too_many(format!(
            "An organisation has at most {MAX_MEMBERS} members."
        ))
    })?;
    caller.record(&parts.core, "service_account.created", &*made.user_id);
    Ok((StatusCode::CREATED, Json(json!(made))))
}

/// `DELETE /organisations/{organisation_id}/service-accounts/{user_id}`: deletes a service account, and revokes its
/// keys.
#[utoipa::path(
    delete, path = "/organisations/{organisation_id}/service-accounts/{user_id}", tag = "organisations",
    params(
        ("organisation_id" = String, Path, description = "The organisation's id."),
        ("user_id" = String, Path, description = "The service account's id."),
    ),
    responses(
        (status = 204, description = "The service account is deleted, and its keys are revoked."),
        (status = 404, description = "`NOT_FOUND`: there is no service account with this id."),
    ),
)]
pub async fn delete_service_account(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    Path((_, user_id)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let id = &caller.organisation_id;
    let exists = has_service_account(&parts.core.database, id, &user_id).await;
    if !exists.map_err(failed)? {
        let what = "The organisation has no service account with this id.";
        return Err(ApiError::new(ErrorCode::NotFound, what).with_param("user_id"));
    }
    members::remove(&parts, &caller, &user_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
