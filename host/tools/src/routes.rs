//! `GET /webhooks/secret`: receivers verify webhooks of their account's agents by the secret.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRef, State};
use serde::Serialize;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::roles::Permission;
use weir_identity::{IdentityParts, WebCaller, handlers};

use super::Tools;

/// Returns the endpoint of the webhook secret.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Tools: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
{
    Endpoints::new().row(
        Access::Web(Permission::Manage),
        handlers!(get_webhook_secret),
    )
}

/// The secret of an account's webhooks.
#[derive(Serialize, ToSchema)]
pub struct WebhookSecret {
    /// Secret of the form `whsec_…`, for libraries of Standard Webhooks.
    secret: String,
}

/// `GET /webhooks/secret`: returns the secret of the caller's account. No API key reads it.
#[utoipa::path(
    get, path = "/webhooks/secret", tag = "swarms",
    responses(
        (status = 200, body = WebhookSecret),
        (status = 404, description = "`NO_WEBHOOKS`: this gateway sends no webhooks."),
    ),
)]
pub async fn get_webhook_secret(
    State(tools): State<Tools>,
    caller: WebCaller,
) -> Result<Json<WebhookSecret>, ApiError> {
    let secret = tools.webhook_secret(&caller.account);
    let secret = secret.ok_or_else(|| {
        ApiError::new(
            ErrorCode::NoWebhooks,
            "This gateway sends no webhooks: its `webhook_key` is not set.",
        )
    })?;
    Ok(Json(WebhookSecret {
        secret: secret.expose().to_owned(),
    }))
}
