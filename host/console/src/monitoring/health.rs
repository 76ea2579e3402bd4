//! `GET /health` and `GET /health/ready`: open to all clients, for load balancers.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_app::App;
use weir_errors::{ApiError, ErrorCode};
use weir_plugins::slots::SlotComponents;

/// Maximum time for which `/health` waits for the stores: it shows that the process responds, even if they hang.
const READINESS_TIME: Duration = Duration::from_millis(250);

/// `GET /health`: the process responds. `ready` is that of `/health/ready`, which a load balancer should check before it routes
/// traffic; `/health` itself returns 200 as long as the process runs, so that nothing restarts it because of a store.
#[utoipa::path(
    get, path = "/health", tag = "service",
    responses((status = 200, body = Health)),
)]
pub async fn get_health(State(app): State<App>) -> Json<Value> {
    let status = match app.draining.is_cancelled() {
        true => "stopping",
        false => "ok",
    };
    let readiness = tokio::time::timeout(READINESS_TIME, get_readiness(State(app))).await;
    let is_ready = readiness.is_ok_and(|readiness| readiness.is_ok());
    Json(json!({ "status": status, "ready": is_ready }))
}

/// `GET /health/ready`: the gateway can serve requests. It returns 503 while the gateway stops, a store is unavailable,
/// the ledger cannot charge, the clock is wrong, or a slot's active component does not load on this node.
#[utoipa::path(
    get, path = "/health/ready", tag = "service",
    responses(
        (status = 200, body = Readiness),
        (status = 503, description = "`NOT_READY`: the gateway stops, or one of its dependencies is unavailable."),
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
        return Err(not_ready(
            "The database does not respond, or accepts no writes.",
        ));
    }
    if let Some(trouble) = app.ledger.trouble() {
        let message = format!("The ledger cannot charge: {trouble}.");
        return Err(not_ready(&message));
    }
    if let Some(trouble) = app.ledger.clock_trouble() {
        let message = format!("The clock is wrong: {trouble}. Synchronise it with NTP.");
        return Err(not_ready(&message));
    }
    if app.cache.probe_writes().await.is_err() {
        return Err(not_ready("The cache does not respond, or refuses writes."));
    }
    if let Some(why) = app.plugins.not_loaded().first() {
        return Err(not_ready(why));
    }
    // Plugins are loaded before the gateway listens; their number is for people.
    Ok(Json(
        json!({ "status": "ready", "adapters": app.plugins.serving().values().filter_map(SlotComponents::active).count() }),
    ))
}

/// The process responds.
#[derive(Serialize, ToSchema)]
pub struct Health {
    /// `starting`, `ok` or `stopping`.
    pub status: String,
    /// Whether the gateway can serve requests, as `/health/ready` says with the reason.
    pub ready: bool,
}

/// The gateway is ready to serve requests.
#[derive(Serialize, ToSchema)]
pub struct Readiness {
    /// `ready`.
    pub status: String,
    /// Slots with an active adapter.
    pub adapters: u64,
}
