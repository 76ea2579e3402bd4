//! `GET /metrics`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use weir_errors::ApiError;

use crate::app::App;
use crate::metrics::GaugeReadings;
use weir_payments::event_store;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics`: all metrics in the text format of OpenMetrics.
#[utoipa::path(
    get, path = "/metrics", tag = "service",
    responses(
        (status = 200, description = "The text format of OpenMetrics.", body = String, content_type = "application/openmetrics-text"),
    ),
)]
pub async fn get_metrics(State(app): State<App>) -> Result<Response, ApiError> {
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text(&app).await?).into_response())
}

/// Returns all current metrics.
pub(crate) async fn text(app: &App) -> Result<String, ApiError> {
    let swarms = app.swarms.store.count_open().await;
    let payment_events = event_store::count_open(&app.database).await;
    // The remaining metrics matter even more while the database is unavailable.
    app.metrics.set(&GaugeReadings {
        in_progress: app.admission.in_progress(),
        queued: app.admission.queued(),
        is_layer_unfit: app.layers.is_unfit().await,
        stores: [
            ("database", app.database.is_reachable().await),
            ("cache", app.cache.ping().await.is_ok()),
        ],
        open_holds: app.ledger.open_holds().await.ok(),
        swarms: swarms.map(Vec::from).unwrap_or_default(),
    });
    app.metrics
        .payments
        .set_open(&payment_events.unwrap_or_default());
    let breakers = &app.inference.routing.breakers;
    breakers.show(&app.catalog.load().candidate_keys());
    app.metrics.plugins.canaries(app.plugins.canary_shares());
    app.metrics.encode().map_err(|_| ApiError::internal())
}
