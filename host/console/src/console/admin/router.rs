//! Every route of the administrators' pages.

use axum::Router;
use axum::routing::{get, post};
use weir_app::App;

use super::{
    audit, catalog, lockouts, model, models, platform, plugins, providers, requests, swarms, tools,
    users, vouchers, webhooks,
};

pub(in crate::console) fn routes() -> Router<App> {
    Router::new()
        .route("/console/admin", get(platform::show_platform))
        .route("/console/admin/overview", get(platform::show_overview))
        .route("/console/admin/requests", get(requests::show_requests))
        .route(
            "/console/admin/requests.csv",
            get(requests::download_requests),
        )
        .route(
            "/console/admin/requests/{request_id}",
            get(requests::show_request),
        )
        .route("/console/admin/models", get(models::show_models))
        .route("/console/admin/models.csv", get(models::download_economics))
        .merge(catalog_routes())
        .route("/console/admin/users", get(users::show_users))
        .route("/console/admin/users.csv", get(users::download_users))
        .route(
            "/console/admin/users/{user_id}/keys.csv",
            get(users::download_keys),
        )
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
        .route(
            "/console/admin/users/{user_id}/credits",
            post(users::change_credits),
        )
        .route("/console/admin/users/{user_id}/plan", post(users::set_plan))
        .route(
            "/console/admin/users/{user_id}/budget",
            post(users::set_budget),
        )
        .route(
            "/console/admin/users/{user_id}/administrator",
            post(users::set_administrator),
        )
        .route(
            "/console/admin/vouchers",
            get(vouchers::show_vouchers).post(vouchers::create_voucher),
        )
        .route(
            "/console/admin/vouchers.csv",
            get(vouchers::download_vouchers),
        )
        .route(
            "/console/admin/vouchers/made",
            get(vouchers::show_made_voucher),
        )
        .route(
            "/console/admin/vouchers/{voucher_id}/revoke",
            post(vouchers::revoke_voucher),
        )
        .route("/console/admin/swarms", get(swarms::show_swarms))
        .route("/console/admin/swarms.csv", get(swarms::download_swarms))
        .route(
            "/console/admin/swarms/{execution_id}/cancel",
            post(swarms::cancel_swarm),
        )
        .route("/console/admin/tools", get(tools::show_tools))
        .route(
            "/console/admin/tools/{server}/{tool}/approve",
            post(tools::approve_tool),
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
        .route(
            "/console/admin/plugins/{slot}/record",
            post(plugins::record),
        )
        .route(
            "/console/admin/plugins/{slot}/record/stop",
            post(plugins::stop_recording),
        )
        .route(
            "/console/admin/plugins/{slot}/record/forget",
            post(plugins::forget_recording),
        )
        .route("/console/admin/lockouts", get(lockouts::show_lockouts))
        .route(
            "/console/admin/lockouts/{address}/clear",
            post(lockouts::clear_lockout),
        )
        .route("/console/admin/webhooks", get(webhooks::show_webhooks))
        .route(
            "/console/admin/webhooks.csv",
            get(webhooks::download_webhooks),
        )
        .route(
            "/console/admin/webhooks/{event_id}/retry",
            post(webhooks::retry_webhook),
        )
        .route("/console/admin/audit", get(audit::show_audit))
        .route("/console/admin/audit.csv", get(audit::download_events))
}

/// Returns the routes of the pages that change the catalog.
fn catalog_routes() -> Router<App> {
    Router::new()
        .route(
            "/console/admin/models/{model}",
            get(model::show_model).post(model::edit_model),
        )
        .route(
            "/console/admin/providers/{provider}",
            get(providers::show_provider).post(providers::edit_provider),
        )
        .route(
            "/console/admin/catalog",
            get(catalog::show_layer).post(catalog::review_layer),
        )
        .route("/console/admin/catalog/apply", post(catalog::apply_layer))
        .route(
            "/console/admin/catalog/restore",
            post(catalog::restore_layer),
        )
        .route("/console/admin/catalog/history", get(catalog::show_history))
}
