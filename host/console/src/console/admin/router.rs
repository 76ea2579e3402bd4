//! Every endpoint of the administrators' pages.

use weir_app::App;
use weir_identity::endpoints::Access::AdminSession;
use weir_identity::endpoints::{Endpoints, get, post};

use super::{
    audit, catalog, lockouts, model, models, platform, plugins, providers, requests, swarms, tools,
    users, vouchers, webhooks,
};

pub(in crate::console) fn endpoints() -> Endpoints<App> {
    catalog_endpoints().row(
        AdminSession,
        [
            get("/console/admin", platform::show_platform),
            get("/console/admin/overview", platform::show_overview),
            get("/console/admin/requests", requests::show_requests),
            get("/console/admin/requests.csv", requests::download_requests),
            get(
                "/console/admin/requests/{request_id}",
                requests::show_request,
            ),
            get("/console/admin/models", models::show_models),
            get("/console/admin/models.csv", models::download_economics),
            get("/console/admin/users", users::show_users),
            get("/console/admin/users.csv", users::download_users),
            get(
                "/console/admin/users/{user_id}/keys.csv",
                users::download_keys,
            ),
            get("/console/admin/users/{user_id}", users::show_user),
            post(
                "/console/admin/users/{user_id}/disable",
                users::disable_user,
            ),
            post("/console/admin/users/{user_id}/enable", users::enable_user),
            post(
                "/console/admin/users/{user_id}/keys/{key_id}/revoke",
                users::revoke_key,
            ),
            post(
                "/console/admin/users/{user_id}/credits",
                users::change_credits,
            ),
            post("/console/admin/users/{user_id}/plan", users::set_plan),
            post("/console/admin/users/{user_id}/budget", users::set_budget),
            post(
                "/console/admin/users/{user_id}/administrator",
                users::set_administrator,
            ),
            get("/console/admin/vouchers", vouchers::show_vouchers),
            post("/console/admin/vouchers", vouchers::create_voucher),
            get("/console/admin/vouchers.csv", vouchers::download_vouchers),
            get("/console/admin/vouchers/made", vouchers::show_made_voucher),
            post(
                "/console/admin/vouchers/{voucher_id}/revoke",
                vouchers::revoke_voucher,
            ),
            get("/console/admin/swarms", swarms::show_swarms),
            get("/console/admin/swarms.csv", swarms::download_swarms),
            post(
                "/console/admin/swarms/{execution_id}/cancel",
                swarms::cancel_swarm,
            ),
            get("/console/admin/tools", tools::show_tools),
            post(
                "/console/admin/tools/{server}/{tool}/approve",
                tools::approve_tool,
            ),
            get("/console/admin/plugins", plugins::show_slots),
            get("/console/admin/plugins/{slot}", plugins::show_slot),
            post("/console/admin/plugins/{slot}/activate", plugins::activate),
            post("/console/admin/plugins/{slot}/rollback", plugins::roll_back),
            post("/console/admin/plugins/{slot}/record", plugins::record),
            post(
                "/console/admin/plugins/{slot}/record/stop",
                plugins::stop_recording,
            ),
            post(
                "/console/admin/plugins/{slot}/record/forget",
                plugins::forget_recording,
            ),
            get("/console/admin/lockouts", lockouts::show_lockouts),
            post(
                "/console/admin/lockouts/{address}/clear",
                lockouts::clear_lockout,
            ),
            get("/console/admin/webhooks", webhooks::show_webhooks),
            get("/console/admin/webhooks.csv", webhooks::download_webhooks),
            post(
                "/console/admin/webhooks/{event_id}/retry",
                webhooks::retry_webhook,
            ),
            get("/console/admin/audit", audit::show_audit),
            get("/console/admin/audit.csv", audit::download_events),
        ],
    )
}

/// Returns the endpoints of the pages that change the catalog.
fn catalog_endpoints() -> Endpoints<App> {
    Endpoints::new().row(
        AdminSession,
        [
            get("/console/admin/models/{model}", model::show_model),
            post("/console/admin/models/{model}", model::edit_model),
            get(
                "/console/admin/providers/{provider}",
                providers::show_provider,
            ),
            post(
                "/console/admin/providers/{provider}",
                providers::edit_provider,
            ),
            get("/console/admin/catalog", catalog::show_layer),
            post("/console/admin/catalog", catalog::review_layer),
            post("/console/admin/catalog/apply", catalog::apply_layer),
            post("/console/admin/catalog/restore", catalog::restore_layer),
            get("/console/admin/catalog/history", catalog::show_history),
        ],
    )
}
