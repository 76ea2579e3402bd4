//! Every route of the administrators' pages.

use axum::Router;
use axum::routing::{get, post};

use super::{audit, lockouts, models, platform, plugins, requests, users, webhooks};
use crate::app::App;

pub(in crate::console) fn routes() -> Router<App> {
    Router::new()
        .route("/console/admin", get(platform::show_platform))
        .route("/console/admin/requests", get(requests::show_requests))
        .route(
            "/console/admin/requests/{request_id}",
            get(requests::show_request),
        )
        .route("/console/admin/models", get(models::show_models))
        .route("/console/admin/users", get(users::show_users))
        .route("/console/admin/users/{user_id}", get(users::show_user))
        .route(
            "/console/admin/users/{user_id}/disable",
            post(users::disable_user),
        )
        .route(
            "/console/admin/users/{user_id}/enable",
            post(users::enable_user),
        )
        .route(
            "/console/admin/users/{user_id}/keys/{key_id}/revoke",
            post(users::revoke_key),
        )
        .route("/console/admin/plugins", get(plugins::show_slots))
        .route("/console/admin/plugins/{slot}", get(plugins::show_slot))
        .route(
            "/console/admin/plugins/{slot}/activate",
            post(plugins::activate),
        )
        .route(
            "/console/admin/plugins/{slot}/rollback",
            post(plugins::roll_back),
        )
        .route("/console/admin/lockouts", get(lockouts::show_lockouts))
        .route(
            "/console/admin/lockouts/{address}/clear",
            post(lockouts::clear_lockout),
        )
        .route("/console/admin/webhooks", get(webhooks::show_webhooks))
        .route(
            "/console/admin/webhooks/{event_id}/retry",
            post(webhooks::retry_webhook),
        )
        .route("/console/admin/audit", get(audit::show_audit))
}
