//! `GET /models`: the catalog as clients see it; `GET /admin/catalog`, as operators do. A dialect's own list is with the
//! dialect.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::listing::CatalogListing;
use crate::admin::AdminCaller;
use crate::app::App;
use crate::identity::{Caller, limits};

/// `GET /models`: every model that the caller may use, with its limits, prices and capabilities.
pub async fn list_models(State(app): State<App>, caller: Caller) -> Json<Value> {
    let catalog = app.catalog.load();
    let models: Vec<_> = catalog
        .models()
        .filter(|model| limits::may_use(caller.models(), &model.id))
        .map(|model| model.item(&catalog.factors))
        .collect();
    Json(json!({ "models": models }))
}

/// `GET /admin/catalog`: the catalog in force as operators see it.
pub async fn get_catalog(State(app): State<App>, _: AdminCaller) -> Json<CatalogListing> {
    Json(CatalogListing::of(&app.catalog.load()))
}
