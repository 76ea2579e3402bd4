//! OpenAI's list of models: `GET /v1/models` and `GET /v1/models/{id}`.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::StatusCode;
use serde_json::{Value, json};

use crate::app::App;
use crate::catalog::Model;
use crate::error::ApiError;
use crate::identity::Caller;
use crate::inference::resolve::unknown_model;

/// `GET /v1/models`: every model, in OpenAI's shape.
pub async fn list_models(State(app): State<App>, _: Caller) -> Json<Value> {
    let data: Vec<_> = app
        .catalog
        .models()
        .map(|model| item(&app, model))
        .collect();
    Json(json!({ "object": "list", "data": data }))
}

/// `GET /v1/models/{id}`: one of them.
pub async fn get_model(
    State(app): State<App>,
    _: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    // What is not UTF-8 is no model's name either.
    let id = id.map_or(String::new(), |Path(id)| id);
    match app.catalog.model(&id) {
        Some(model) => Ok(Json(item(&app, model))),
        None => Err(unknown_model(StatusCode::NOT_FOUND, &id).with_param("model")),
    }
}

fn item(app: &App, model: &Model) -> Value {
    json!({
        "id": model.id,
        "object": "model",
        "created": app.started_at.seconds(),
        "owned_by": model.candidates[0].upstream.name,
    })
}
