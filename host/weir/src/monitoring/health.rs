//! `GET /health` and `GET /health/ready`: open to all, for load balancers.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use weir_errors::{ApiError, ErrorCode};
use weir_plugins::slots::InSlot;

use crate::app::App;
use crate::openapi::bodies::{Health, Readiness};

/// `GET /health`: the process answers.
#[utoipa::path(
    get, path = "/health", tag = "service",
    responses((status = 200, body = Health)),
)]
pub async fn get_health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// `GET /health/ready`: requests can be served. 503 while the gateway stops, a store is away, nothing can be charged, the
/// clock is wrong, or what is activated in a slot does not load here.
#[utoipa::path(
    get, path = "/health/ready", tag = "service",
    responses(
        (status = 200, body = Readiness),
        (status = 503, description = "`NOT_READY`: it stops, or something that it needs is away."),
    ),
)]
pub async fn get_readiness(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let not_ready = |message: &str| {
        ApiError::new(ErrorCode::NotReady, message).with_retry_after(Duration::from_secs(1))
    };
    if app.draining.is_cancelled() {
        return Err(not_ready("The gateway is stopping."));
    }
    if !app.database.is_reachable().await {
        return Err(not_ready("The database does not answer."));
    }
    if let Some(trouble) = app.ledger.trouble() {
        let message = format!("The ledger can charge nothing: {trouble}.");
        return Err(not_ready(&message));
    }
    if let Some(trouble) = app.ledger.clock_trouble() {
        let message = format!("The time is wrong: {trouble}. Have it set by NTP.");
        return Err(not_ready(&message));
    }
    if app.cache.ping().await.is_err() {
        return Err(not_ready("The cache does not answer."));
    }
    if let Some(why) = app.plugins.not_loaded().first() {
        return Err(not_ready(why));
    }
    // Plugins are loaded before the gateway listens; their number is here for people.
    Ok(Json(
        json!({ "status": "ready", "adapters": app.plugins.serving().values().filter_map(InSlot::active).count() }),
    ))
}
