//! `POST /mcp`.
//!
//! Callers without access get the usual HTTP status and error; errors of a message use the protocol.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRef, FromRequestParts, Request as HttpRequest, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{StatusCode, header};
use rmcp::model::{
    DiscoverResult, ErrorCode as JsonRpcCode, Implementation, InitializeRequestParams,
    InitializeResult, JsonRpcError, JsonRpcResponse, JsonRpcVersion2_0, ProtocolVersion,
    ServerCapabilities, ToolsCapability,
};
use serde::Serialize;
use serde_json::{Value, json};
use weir_errors::{ApiError, ErrorCode, ProtocolErrorBody};
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::roles::Permission;
use weir_identity::{Caller, IdentityParts, handlers};
use weir_request::context::RequestContext;
use weir_request::cors;
use weir_request::request::JsonBody;
use weir_request::schemas::vendors::{McpAnswer, McpMessage};

use super::McpParts;
use super::message::{IncomingMessage, McpRefusal, McpRequest, VERSIONS, shown};
use super::offer::{self, McpCallFailure};
use crate::swarm::plan::Caps;
use crate::swarm::request::not_eligible;

/// Returns the MCP endpoint.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    McpParts: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
{
    Endpoints::new().row(
        Access::User(Permission::UseModels),
        handlers!(answer_message),
    )
}

/// The maximum bytes of a message: JSON may escape each byte of the arguments.
const MAX_BYTES: usize = 1 << 20;

/// The check that a request comes from no web page, or from a page of a configured origin. It stops DNS rebinding: a
/// page whose name resolves to this machine sends its own origin.
pub struct OriginCheck;

impl<S> FromRequestParts<S> for OriginCheck
where
    Arc<IdentityParts>: FromRef<S>,
    S: Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let identity = Arc::<IdentityParts>::from_ref(state);
        let is_page = parts.headers.contains_key(header::ORIGIN);
        let is_listed = cors::listed_origin(&identity.cors_origins, &parts.headers).is_some();
        match is_listed || !is_page {
            true => Ok(Self),
            false => Err(ApiError::new(
                ErrorCode::OriginNotAllowed,
                "Web pages may call this endpoint only from one of `cors_origins`.",
            )),
        }
    }
}

/// `POST /mcp`: takes one message of the Model Context Protocol.
#[utoipa::path(
    post, path = "/mcp", tag = "tools",
    request_body = McpMessage,
    responses(
        (status = 200, body = McpAnswer, description = "The answer to a request."),
        (status = 202, description = "The notification is accepted."),
        (status = 403, description = "`PLAN_NOT_ELIGIBLE`, `ORIGIN_NOT_ALLOWED`: the plan has no tools, or a web page of another origin sent the request."),
        (status = 429, description = "`BUDGET_EXCEEDED`, `TOO_MANY_AT_ONCE`: a budget is used up, or the account has its share of calls."),
        (status = 404, description = "`-32601`: the method does not exist; an error of the protocol."),
    ),
)]
pub async fn answer_message(
    State(parts): State<McpParts>,
    _: OriginCheck,
    caller: Caller,
    context: RequestContext,
    request: HttpRequest,
) -> Result<Response, ApiError> {
    Caps::of(caller.plan).ok_or_else(not_eligible)?;
    let headers = request.headers().clone();
    let JsonBody { bytes, room } = JsonBody::read(request, &parts.bodies, MAX_BYTES).await?;
    let message = IncomingMessage::read(&headers, &bytes);
    drop((bytes, room));
    let request = match message {
        Ok(IncomingMessage::Request(request)) => request,
        Ok(IncomingMessage::Notification) => return Ok(StatusCode::ACCEPTED.into_response()),
        Err(refusal) => return Ok(refuse(&context, refusal)),
    };
    match answer(&parts, &caller, &context, &request).await {
        Ok(result) => Ok(Json(JsonRpcResponse {
            jsonrpc: JsonRpcVersion2_0,
            id: request.id,
            result,
        })
        .into_response()),
        Err(McpCallFailure::Refused(refusal)) => Ok(refuse(&context, refusal)),
        Err(McpCallFailure::Unserved(error)) => Err(error),
    }
}

async fn answer(
    parts: &McpParts,
    caller: &Caller,
    context: &RequestContext,
    request: &McpRequest,
) -> Result<Value, McpCallFailure> {
    match (&*request.method, request.is_modern) {
        ("tools/list", _) => offer::list(parts, caller, request)
            .map(written)
            .map_err(McpCallFailure::Refused),
        ("tools/call", _) => offer::call(parts, caller, context, request)
            .await
            .map(written),
        ("server/discover", true) => Ok(written(discovered())),
        ("initialize", false) => initialize(request).map_err(McpCallFailure::Refused),
        ("ping", false) => Ok(json!({})),
        (method, _) => {
            let why = format!("Method not found: {}", shown(method));
            let refusal = request.refuse(JsonRpcCode::METHOD_NOT_FOUND, why);
            Err(McpCallFailure::Refused(refusal))
        }
    }
}

fn discovered() -> DiscoverResult {
    DiscoverResult::new(VERSIONS.to_vec(), capabilities()).with_server_info(own_name())
}

/// Returns the client's requested revision if weir supports it with this method, else the newest one that has it.
fn initialize(request: &McpRequest) -> Result<Value, McpRefusal> {
    let params: InitializeRequestParams = request.params()?;
    let asked = params.protocol_version;
    let is_spoken = asked.has_initialize() && VERSIONS.contains(&asked);
    let version = match is_spoken {
        true => asked,
        false => ProtocolVersion::LATEST_WITH_INITIALIZE,
    };
    let result = InitializeResult::new(capabilities())
        .with_server_info(own_name())
        .with_protocol_version(version);
    Ok(written(result))
}

fn capabilities() -> ServerCapabilities {
    let mut capabilities = ServerCapabilities::default();
    capabilities.tools = Some(ToolsCapability::default());
    capabilities
}

fn own_name() -> Implementation {
    Implementation::new("weir", env!("CARGO_PKG_VERSION"))
}

fn written(result: impl Serialize) -> Value {
    json!(result)
}

fn refuse(context: &RequestContext, refusal: McpRefusal) -> Response {
    context.note_failure(format!("MCP error {}", refusal.error.code.0));
    let mut response = Json(JsonRpcError::new(refusal.id, refusal.error)).into_response();
    *response.status_mut() = refusal.status;
    response.extensions_mut().insert(ProtocolErrorBody);
    response
}
