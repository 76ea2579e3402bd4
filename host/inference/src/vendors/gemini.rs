//! Google's Gemini API: `POST /v1beta/models/{id}`, `GET /v1beta/models` and `GET /v1beta/models/{id}`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use weir_catalog::Model;
use weir_catalog::permitted::may_use;
use weir_dialects::StreamForm;
use weir_dialects::gemini_generate::{ModelMethod, bare_model, read, read_count};
use weir_errors::{ApiError, ErrorCode};
use weir_identity::Caller;
use weir_request::context::RequestContext;
use weir_request::request::JsonBody;
use weir_request::schemas::parameters::{CacheControl, Idempotency};
use weir_request::schemas::vendors::{
    GeminiModel, GeminiModelList, GeminiRequest, GeminiResult, GeminiStreamEvent,
};

use crate::InferenceParts;
use crate::files;
use crate::idempotency::IdempotencyHeader;
use crate::resolve::{self, unknown_model};
use crate::routes::{self, CapacityCheck, take_turn};

/// The maximum models of a page, as with Google.
const MAX_PAGE_SIZE: usize = 1_000;

/// The form of a stream.
#[derive(Debug, Deserialize)]
pub struct StreamQuery {
    alt: Option<String>,
}

/// The page of a list.
#[derive(Debug, Deserialize)]
pub struct ModelPageQuery {
    #[serde(rename = "pageSize")]
    size: Option<usize>,
    #[serde(rename = "pageToken")]
    token: Option<String>,
}

/// `POST /v1beta/models/{id}`: responds in the format of Google's Gemini API. The last part of the path is the model's
/// id and a method: `generateContent`, `streamGenerateContent`, or `countTokens`, which is an estimate, and free.
#[utoipa::path(
    post, path = "/v1beta/models/{*id}", tag = "models",
    params(
        Idempotency,
        CacheControl,
        ("id" = String, Path, description = "Model id, a colon and the method; it may contain unescaped slashes.", example = "demo:generateContent"),
        ("alt" = Option<String>, Query, description = "`sse` for a stream of server-sent events; otherwise, a stream is a JSON array.", nullable = false),
    ),
    request_body = GeminiRequest,
    responses(
        (status = 200, content((GeminiResult = "application/json"), (GeminiStreamEvent = "text/event-stream"))),
    ),
)]
#[expect(
    clippy::too_many_arguments,
    reason = "each is an extractor of a part of the request"
)]
pub async fn generate_content(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    target: Result<Path<String>, PathRejection>,
    query: Result<Query<StreamQuery>, QueryRejection>,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let target = text(target);
    let Some((model, method)) = ModelMethod::of(&target) else {
        let message =
            "The path must end in :generateContent, :streamGenerateContent or :countTokens.";
        return Err(ApiError::new(ErrorCode::NotFound, message));
    };
    let stream = match method {
        ModelMethod::Generate => None,
        ModelMethod::Stream => Some(form(query)?),
        ModelMethod::CountTokens => return count_tokens(&parts, caller, model, body).await,
    };
    let read = |body: &[u8]| read(body, model, stream);
    routes::complete(&parts, caller, context, key, body, read).await
}

async fn count_tokens(
    parts: &InferenceParts,
    caller: Caller,
    model: &str,
    body: JsonBody,
) -> Result<Response, ApiError> {
    // The body takes as much memory as a request to the model.
    let (customer, _turn) = take_turn(parts, caller).await?;
    let call = read_count(&body.bytes, model)?;
    let catalog = parts.catalog.load();
    customer.require(&catalog, &call.request.model)?;
    let documents = files::read_documents(parts, &call.request, &call.attachments).await?;
    let tokens = resolve::estimated_input(&catalog, &call, &documents)?;
    Ok(Json(json!({ "totalTokens": tokens })).into_response())
}

fn form(query: Result<Query<StreamQuery>, QueryRejection>) -> Result<StreamForm, ApiError> {
    let wrong = || ApiError::invalid_request("alt", "alt must be one of sse, json.");
    let Query(query) = query.map_err(|_| wrong())?;
    match query.alt.as_deref() {
        Some("sse") => Ok(StreamForm::Events),
        None | Some("json") => Ok(StreamForm::List),
        Some(_) => Err(wrong()),
    }
}

/// Returns the parameter of a path. One that is not UTF-8 belongs to no model.
fn text(parameter: Result<Path<String>, PathRejection>) -> String {
    parameter.map_or(String::new(), |Path(text)| text)
}

/// `GET /v1beta/models`: lists the models by id, in the format of Google's Gemini API.
#[utoipa::path(
    get, path = "/v1beta/models", tag = "models", operation_id = "list_gemini_models",
    params(
        ("pageSize" = Option<u32>, Query, description = "Maximum number of models.", minimum = 1, maximum = 1000, nullable = false),
        ("pageToken" = Option<String>, Query, description = "`nextPageToken` of the page before.", nullable = false),
    ),
    responses((status = 200, body = GeminiModelList)),
)]
pub async fn list_models(
    State(parts): State<Arc<InferenceParts>>,
    caller: Caller,
    page: Result<Query<ModelPageQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let wrong = || {
        let message = format!("pageSize must be a whole number from 1 to {MAX_PAGE_SIZE}.");
        ApiError::invalid_request("pageSize", message)
    };
    let Query(page) = page.map_err(|_| wrong())?;
    let size = page.size.unwrap_or(MAX_PAGE_SIZE);
    if !(1..=MAX_PAGE_SIZE).contains(&size) {
        return Err(wrong());
    }
    let is_in = |model: &&Model| {
        let id = model.id.as_str();
        may_use(&caller, model) && page.token.as_deref().is_none_or(|token| id > token)
    };
    let catalog = parts.catalog.load();
    let mut models: Vec<_> = catalog.models().filter(is_in).collect();
    let has_more = models.len() > size;
    models.truncate(size);
    let items: Vec<_> = models.iter().map(|model| item(model)).collect();
    let mut list = json!({ "models": items });
    if let Some(last) = models.last().filter(|_| has_more) {
        list["nextPageToken"] = last.id.clone().into();
    }
    Ok(Json(list))
}

/// `GET /v1beta/models/{id}`: returns one model, in the format of Google's Gemini API.
#[utoipa::path(
    get, path = "/v1beta/models/{*id}", tag = "models", operation_id = "get_gemini_model",
    params(("id" = String, Path, description = "Model id; it may contain unescaped slashes.")),
    responses(
        (status = 200, body = GeminiModel),
        (status = 404, description = "`UNKNOWN_MODEL`: the model does not exist."),
    ),
)]
pub async fn get_model(
    State(parts): State<Arc<InferenceParts>>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let id = text(id);
    let id = bare_model(&id);
    let catalog = parts.catalog.load();
    match catalog.model(id) {
        Some(model) if may_use(&caller, model) => Ok(Json(item(model))),
        _ => Err(unknown_model(&catalog, StatusCode::NOT_FOUND, id).with_param("model")),
    }
}

fn item(model: &Model) -> Value {
    json!({
        "name": format!("models/{}", model.id),
        "displayName": model.name,
        "inputTokenLimit": model.context_window,
        "outputTokenLimit": model.max_output_tokens,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    })
}
