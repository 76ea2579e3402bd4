//! `/organisations/{organisation_id}/projects`: groups of keys with common budgets.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::members::{bury_keys, has_project};
use weir_request::small_body::SmallBody;

use super::routes::NameRequest;
use super::store::{self, MAX_PROJECTS, ProjectItem};
use super::{MemberCaller, OrganisationParts, failed, read_name, too_many};

/// The projects of an organisation.
#[derive(Serialize, ToSchema)]
struct ProjectList {
    /// Active projects, oldest first.
    projects: Vec<ProjectItem>,
}

/// `GET /organisations/{organisation_id}/projects`: lists the active projects.
#[utoipa::path(
    get, path = "/organisations/{organisation_id}/projects", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    responses((status = 200, body = ProjectList), (status = 404, description = "`NOT_FOUND`: you are not a member.")),
)]
pub async fn list_projects(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
) -> Result<Json<Value>, ApiError> {
    let projects = store::list_projects(&parts.core.database, &caller.organisation_id).await;
    let projects = projects.map_err(failed)?;
    Ok(Json(json!(ProjectList { projects })))
}

/// `POST /organisations/{organisation_id}/projects`: creates a project.
#[utoipa::path(
    post, path = "/organisations/{organisation_id}/projects", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    request_body = NameRequest,
    responses(
        (status = 201, body = ProjectItem),
        (status = 404, description = "`NOT_FOUND`: you are not a member."),
        (status = 429, description = "`ORGANISATION_LIMIT_REACHED`: an organisation has at most 100 active projects."),
    ),
)]
pub async fn create_project(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    SmallBody(NameRequest { name }): SmallBody<NameRequest>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let project = create(&parts, &caller, &name).await?;
    Ok((StatusCode::CREATED, Json(json!(project))))
}

pub async fn create(
    parts: &OrganisationParts,
    caller: &MemberCaller,
    name: &str,
) -> Result<ProjectItem, ApiError> {
    let name = read_name(name)?;
    let (core, id) = (&parts.core, &caller.organisation_id);
    let project = store::create_project(&core.database, id, name, core.clock.now()).await;
    let project = project.map_err(failed)?.ok_or_else(|| {
        let most = MAX_PROJECTS;
        too_many(format!(
            "An organisation has at most {most} active projects."
        ))
    })?;
    caller.record(core, "project.created", &*project.project_id);
    Ok(project)
}

/// `DELETE /organisations/{organisation_id}/projects/{project_id}`: archives a project, and revokes its keys. Its usage
/// stays.
#[utoipa::path(
    delete, path = "/organisations/{organisation_id}/projects/{project_id}", tag = "organisations",
    params(
        ("organisation_id" = String, Path, description = "The organisation's id."),
        ("project_id" = String, Path, description = "The project's id."),
    ),
    responses(
        (status = 204, description = "The project is archived, and its keys are revoked."),
        (status = 404, description = "`NOT_FOUND`: there is no active project with this id."),
    ),
)]
pub async fn archive_project(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    Path((_, project_id)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    archive(&parts, &caller, &project_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Archives a project, and revokes its keys.
pub async fn archive(
    parts: &OrganisationParts,
    caller: &MemberCaller,
    project_id: &str,
) -> Result<(), ApiError> {
    let (core, id) = (&parts.core, &caller.organisation_id);
    let exists = has_project(&core.database, id, project_id).await;
    if !exists.map_err(failed)? {
        return Err(unknown_project());
    }
    let keys = store::keys_of_project(&core.database, project_id).await;
    bury_keys(core, &keys.map_err(failed)?).await?;
    let archived = store::archive_project(&core.database, id, project_id, core.clock.now()).await;
    if !archived.map_err(failed)? {
        return Err(unknown_project());
    }
    caller.record(core, "project.archived", project_id);
    Ok(())
}

fn unknown_project() -> ApiError {
    let what = "The organisation has no active project with this id.";
    ApiError::new(ErrorCode::NotFound, what).with_param("project_id")
}
