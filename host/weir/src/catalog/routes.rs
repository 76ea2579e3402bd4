//! `GET /models`: the catalog for clients; `GET /admin/catalog`: the catalog for operators. Each dialect has its own
//! list of models.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::listing::CatalogListing;
use crate::app::App;
use crate::identity::admin::AdminCaller;
use crate::identity::{Caller, limits};
use crate::openapi::bodies::ModelList;

/// `GET /models`: lists the models that the caller may use, with their limits, prices and capabilities.
#[utoipa::path(
    get, path = "/models", tag = "models", security(("user" = [])),
    responses((status = 200, body = ModelList)),
)]
pub async fn list_models(State(app): State<App>, caller: Caller) -> Json<Value> {
    let catalog = app.catalog.load();
    let models: Vec<_> = catalog
        .models()
        .filter(|model| limits::may_use(caller.models(), &model.id))
        .map(|model| model.item(&catalog.factors))
        .collect();
    Json(json!({ "models": models }))
}

/// `GET /admin/catalog`: returns the active catalog in the operators' view.
#[utoipa::path(
    get, path = "/admin/catalog", tag = "administration", security(("admin" = [])),
    responses((status = 200, body = CatalogListing)),
)]
pub async fn get_catalog(State(app): State<App>, _: AdminCaller) -> Json<CatalogListing> {
    Json(CatalogListing::of(&app.catalog.load()))
}
