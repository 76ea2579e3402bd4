//! `/admin/mcp`: definitions and changes of remote tools.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRef, Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::admin::AdminCaller;
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::{IdentityParts, handlers};
use weir_request::audit::{Actor, AuditEvent};
use weir_request::json::from_json;
use weir_request::node::Core;
use weir_request::request::{BodyReader, JsonBody};

use super::RemoteTools;
use super::store::PinnedTool;

/// Returns the administrators' endpoints of remote MCP tools.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    RemoteTools: FromRef<S>,
    Core: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new().row(Access::Admin, handlers!(list_tools, approve_tool))
}

/// All remote tools that weir has ever seen.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PinnedToolList {
    /// Tools, by server and name.
    pub tools: Vec<PinnedTool>,
}

/// The body of an approval.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ToolApproval)]
struct Approval {
    /// `changed_digest` of the reviewed change.
    digest: String,
}

/// `GET /admin/mcp/tools`: returns each remote tool's pinned definition and its unapproved change.
#[utoipa::path(
    get, path = "/admin/mcp/tools", tag = "administration",
    operation_id = "list_mcp_tools",
    responses((status = 200, body = PinnedToolList)),
)]
pub async fn list_tools(
    State(remotes): State<RemoteTools>,
    _: AdminCaller,
) -> Result<Json<PinnedToolList>, ApiError> {
    let tools = remotes.pins().list().await.map_err(failed)?;
    Ok(Json(PinnedToolList { tools }))
}

/// `POST /admin/mcp/tools/{server}/{tool}/approve`: approves a change.
#[utoipa::path(
    post, path = "/admin/mcp/tools/{server}/{tool}/approve", tag = "administration",
    operation_id = "approve_mcp_tool",
    params(
        ("server" = String, Path, description = "The server's name in the configuration."),
        ("tool" = String, Path, description = "The tool's own name."),
    ),
    request_body = Approval,
    responses(
        (status = 204, description = "The tool is enabled with the new definition."),
        (status = 409, description = "`NOT_CHANGED`: the digest is not the tool's current change."),
    ),
)]
pub async fn approve_tool(
    State(core): State<Core>,
    State(remotes): State<RemoteTools>,
    AdminCaller { actor, .. }: AdminCaller,
    Path((server, tool)): Path<(String, String)>,
    body: JsonBody,
) -> Result<StatusCode, ApiError> {
    let Approval { digest } = from_json(&body.bytes)?;
    approve(&core, &remotes, &actor, (&server, &tool), &digest).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Approves the change of a tool that has this digest.
pub async fn approve(
    core: &Core,
    remotes: &RemoteTools,
    actor: &Actor,
    (server, tool): (&str, &str),
    digest: &str,
) -> Result<(), ApiError> {
    let pins = remotes.pins();
    let approved = pins.approve((server, tool), digest, core.clock.now());
    if !approved.await.map_err(failed)? {
        return Err(ApiError::new(
            ErrorCode::NotChanged,
            "The digest is not the tool's current change: read `GET /admin/mcp/tools`, and send its `changed_digest`.",
        )
        .with_param("digest"));
    }
    let reason = format!("{server}.{tool}");
    let kind = "mcp_tool.approved";
    core.audit
        .record_by(actor, AuditEvent::RemoteTool { kind, reason });
    remotes.look_now();
    Ok(())
}

fn failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "reading remote tools")
}
