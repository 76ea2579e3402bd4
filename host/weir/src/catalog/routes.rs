//! `GET /models`: the catalog as clients see it. A dialect's own list is with the dialect.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::app::App;
use crate::identity::Caller;

/// `GET /models`: every model with its limits, prices and capabilities.
pub async fn list_models(State(app): State<App>, _: Caller) -> Json<Value> {
    let factors = &app.config.price_factors;
    let models: Vec<_> = app
        .catalog
        .models()
        .map(|model| model.item(factors))
        .collect();
    Json(json!({ "models": models }))
}
