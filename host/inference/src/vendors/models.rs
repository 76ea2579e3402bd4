//! The list of models for vendors' SDKs: `GET /v1/models` and `GET /v1/models/{id}`.
//!
//! OpenAI and Anthropic use the same paths. Their objects have no conflicting fields, so one response serves both.
//! Google's SDKs, with their header, get Google's objects. weir's own list belongs to the catalog.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use weir_catalog::Model;
use weir_catalog::permitted::may_use;
use weir_dialects::gemini_generate::KEY_HEADER;
use weir_errors::ApiError;
use weir_identity::Caller;
use weir_request::schemas::vendors::{VendorModel, VendorModelList};

use super::gemini::{self, ModelPageQuery};
use crate::InferenceParts;
use crate::resolve::unknown_model;

/// The maximum models of a page, as with Anthropic.
const MAX_LIMIT: usize = 1_000;

/// The page that Anthropic's SDKs request; OpenAI's list has one page.
#[derive(Debug, Deserialize)]
pub struct PageQuery {
    /// Maximum number of models; all unless set.
    limit: Option<usize>,
    after_id: Option<String>,
    before_id: Option<String>,
}

/// `GET /v1/models`: lists the models by id; all, unless the query has a page. With `X-Goog-Api-Key`, the list is in
/// Google's format.
#[utoipa::path(
    get, path = "/v1/models", tag = "models", operation_id = "list_vendor_models",
    params(
        ("limit" = Option<u32>, Query, description = "Maximum number of models; all unless set.", minimum = 1, maximum = 1000, nullable = false),
        ("after_id" = Option<String>, Query, description = "Models after this one.", nullable = false),
        ("before_id" = Option<String>, Query, description = "Models before this one.", nullable = false),
    ),
    responses((status = 200, body = VendorModelList)),
)]
pub async fn list_models(
    State(parts): State<Arc<InferenceParts>>,
    caller: Caller,
    headers: HeaderMap,
    page: Result<Query<PageQuery>, QueryRejection>,
    google: Result<Query<ModelPageQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    if headers.contains_key(KEY_HEADER) {
        return gemini::list_models(State(parts), caller, google).await;
    }
    let limit_is_wrong = || {
        let message = format!("limit must be a whole number from 1 to {MAX_LIMIT}.");
        ApiError::invalid_request("limit", message)
    };
    let Query(page) = page.map_err(|_| limit_is_wrong())?;
    if page
        .limit
        .is_some_and(|limit| !(1..=MAX_LIMIT).contains(&limit))
    {
        return Err(limit_is_wrong());
    }
    let is_in = |model: &&Model| {
        let id = model.id.as_str();
        may_use(&caller, model)
            && page.after_id.as_deref().is_none_or(|after| id > after)
            && page.before_id.as_deref().is_none_or(|before| id < before)
    };
    let catalog = parts.catalog.load();
    let mut models: Vec<_> = catalog.models().filter(is_in).collect();
    let limit = page.limit.unwrap_or(usize::MAX);
    let has_more = models.len() > limit;
    match page.before_id {
        // The page that ends before `before_id`.
        Some(_) if has_more => drop(models.drain(..models.len() - limit)),
        _ => models.truncate(limit),
    }
    let id = |model: Option<&&Model>| model.map(|model| model.id.clone());
    Ok(Json(json!({
        "object": "list",
        "data": models.iter().map(|model| item(&parts, model)).collect::<Vec<_>>(),
        "has_more": has_more,
        "first_id": id(models.first()),
        "last_id": id(models.last()),
    })))
}

/// `GET /v1/models/{id}`: returns one model. With `X-Goog-Api-Key`, it is in Google's format.
#[utoipa::path(
    get, path = "/v1/models/{*id}", tag = "models", operation_id = "get_vendor_model",
    params(("id" = String, Path, description = "Model id; it may contain unescaped slashes.")),
    responses(
        (status = 200, body = VendorModel),
        (status = 404, description = "`UNKNOWN_MODEL`: the model does not exist."),
    ),
)]
pub async fn get_model(
    State(parts): State<Arc<InferenceParts>>,
    caller: Caller,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    if headers.contains_key(KEY_HEADER) {
        return gemini::get_model(State(parts), caller, id).await;
    }
    // A name that is not UTF-8 belongs to no model.
    let id = id.map_or(String::new(), |Path(id)| id);
    let catalog = parts.catalog.load();
    match catalog.model(&id) {
        Some(model) if may_use(&caller, model) => Ok(Json(item(&parts, model))),
        _ => Err(unknown_model(&catalog, StatusCode::NOT_FOUND, &id).with_param("model")),
    }
}

/// Returns a model. The vendors' creation time is unknown, so the field has the gateway's start time.
fn item(parts: &InferenceParts, model: &Model) -> Value {
    json!({
        "id": model.id,
        // OpenAI's fields.
        "object": "model",
        "created": parts.started_at.seconds(),
        "owned_by": model.candidates[0].upstream().name,
        // Anthropic's fields.
        "type": "model",
        "lifecycle": "active",
        "display_name": model.name,
        "created_at": parts.started_at.iso(),
        "max_input_tokens": model.context_window,
        "max_tokens": model.max_output_tokens,
    })
}
