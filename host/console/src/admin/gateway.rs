//! `/local/gateway` and `/local/console-link`, only at the admin socket.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use weir_app::App;
use weir_errors::ApiError;
use weir_identity::admin::AdminCaller;
use weir_identity::console_link;

/// The gateway's address.
#[derive(Debug, Serialize, Deserialize)]
pub struct GatewayAddress {
    /// The URL of its public service as this machine reaches it; null if the gateway is an executor without the API.
    pub url: Option<String>,
}

/// A one-time link to the console.
#[derive(Debug, Serialize, Deserialize)]
pub struct ConsoleLink {
    /// The link's path and its fragment, which holds the code.
    pub path: String,
    /// The URL of this gateway, to put before the path; null if the gateway is an executor without the API.
    pub url: Option<String>,
    /// The time at which the link expires, in ISO 8601.
    pub expires_at: String,
}

/// `GET /local/gateway`: returns the gateway's address.
pub async fn get_gateway(State(app): State<App>, _: AdminCaller) -> Json<GatewayAddress> {
    Json(GatewayAddress { url: app.url() })
}

/// `POST /local/console-link`: creates a link that signs an administrator in to the console, once.
pub async fn create_console_link(
    State(app): State<App>,
    AdminCaller { actor, .. }: AdminCaller,
) -> Result<(StatusCode, Json<ConsoleLink>), ApiError> {
    let (code, expires_at) = console_link::create(&app, &actor).await?;
    let link = ConsoleLink {
        path: format!("/console/sign-in#{}", code.expose()),
        url: app.url(),
        expires_at: expires_at.iso(),
    };
    Ok((StatusCode::CREATED, Json(link)))
}
