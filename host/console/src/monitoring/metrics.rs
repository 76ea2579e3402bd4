//! `GET /metrics`.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use weir_app::App;
use weir_app::config::METRICS_TOKEN_BYTES;
use weir_app::request_layer::{Peer, is_forwarded};
use weir_errors::{ApiError, ErrorCode};
use weir_payments::event_store;
use weir_request::metrics::GaugeReadings;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics`: all metrics in the text format of OpenMetrics. At a public listener, it answers direct requests from its own
/// machine, and requests with the token of `metrics_token_file` as a bearer token.
#[utoipa::path(
    get, path = "/metrics", tag = "service",
    responses(
        (status = 200, description = "The text format of OpenMetrics.", body = String, content_type = "application/openmetrics-text"),
        (status = 401, description = "`UNAUTHENTICATED`: the request came from another machine or through a proxy, without the token."),
    ),
)]
pub async fn get_metrics(State(app): State<App>) -> Result<Response, ApiError> {
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text(&app).await?).into_response())
}

/// `GET /metrics` at the public listener, if weir has no internal one; the operation is that of [`get_metrics`].
pub async fn get_public_metrics(
    state: State<App>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let peer = peer.map(|Extension(Peer(peer))| peer.to_canonical());
    let is_direct = peer.is_some_and(|peer| peer.is_loopback()) && !is_forwarded(&headers);
    if is_direct || has_token(&state.0, &headers).await {
        return get_metrics(state).await;
    }
    let message = "Metrics are for this machine; from elsewhere, send the token of metrics_token_file as a bearer token.";
    Err(ApiError::new(ErrorCode::Unauthenticated, message))
}

/// Returns whether a request has the token for metrics. The file is read each time, so that a new token works at once.
async fn has_token(app: &App, headers: &HeaderMap) -> bool {
    let sent = headers.get(header::AUTHORIZATION);
    let sent = sent.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let (Some(sent), Some(file)) = (sent, &app.config.metrics_token_file) else {
        return false;
    };
    match tokio::fs::read(file).await {
        Ok(token) => {
            let token = token.trim_ascii();
            token.len() >= METRICS_TOKEN_BYTES
                && aws_lc_rs::constant_time::verify_slices_are_equal(sent, token).is_ok()
        }
        Err(error) => {
            tracing::error!(%error, file = %file.display(), "cannot read metrics_token_file");
            false
        }
    }
}

/// Returns all current metrics.
pub async fn text(app: &App) -> Result<String, ApiError> {
    let swarms = app.swarms.store.count_open().await;
    let payment_events = event_store::count_open(&app.database).await;
    // The remaining metrics matter even more while the database is unavailable.
    app.metrics.set(&GaugeReadings {
        in_progress: app.admission.in_progress(),
        queued: app.admission.queued(),
        is_layer_unfit: app.layers.is_unfit().await,
        stores: [
            ("database", app.database.is_reachable().await),
            ("cache", app.cache.probe_writes().await.is_ok()),
        ],
        open_holds: app.ledger.open_holds().await.ok(),
        background: app.background_work(),
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
