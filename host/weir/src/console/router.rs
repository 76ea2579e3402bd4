//! Every route of the console.

use axum::Router;
use axum::middleware;
use axum::routing::{get, post};

use super::{assets, overview, respond, sign_in, welcome};
use crate::app::App;

/// The routes of the console, and the page that greets at `/`.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/", get(welcome::show_welcome))
        .route("/console", get(overview::show_overview))
        .route(
            "/console/sign-in",
            get(sign_in::show_sign_in).post(sign_in::sign_in),
        )
        .route(
            "/console/sign-in/development",
            post(sign_in::sign_in_in_development),
        )
        .route("/console/sign-out", post(sign_in::sign_out))
        .route("/console/assets/{name}", get(assets::get_asset))
        .route("/console/{*path}", get(welcome::show_nothing))
        .route_layer(middleware::from_fn(respond::as_pages))
}
