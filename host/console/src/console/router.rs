//! Every route of the console.

use axum::Router;
use axum::middleware;
use axum::routing::{get, post};
use weir_app::App;

use super::{
    admin, assets, docs, issuers, keys, money, organisations, overview, playground, requests,
    respond, sign_in, swarms, usage, welcome,
};

/// Returns the console's routes and the welcome page at `/`.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/", get(welcome::show_welcome))
        .route("/docs", get(docs::show_docs))
        .route("/console", get(overview::show_overview))
        .route("/console/playground", get(playground::show_playground))
        .route("/console/usage", get(usage::show_usage))
        .route("/console/requests", get(requests::show_requests))
        .route(
            "/console/requests/table.csv",
            get(requests::download_requests),
        )
        .route(
            "/console/requests/{request_id}",
            get(requests::show_request),
        )
        .route(
            "/console/keys",
            get(keys::show_keys).post(keys::make_own_key),
        )
        .merge(organisation_routes())
        .route("/console/keys/made", get(keys::show_made_key))
        .route("/console/keys/{key_id}/revoke", post(keys::revoke_key))
        .route(
            "/console/keys/{key_id}/content-log",
            post(keys::set_key_content_log),
        )
        .route("/console/money", get(money::show_money))
        .route(
            "/console/money/statement.csv",
            get(money::download_statement),
        )
        .route("/console/money/plan", post(money::buy_plan))
        .route("/console/money/top-up", post(money::buy_credits))
        .route("/console/money/portal", post(money::open_portal))
        .route("/console/money/voucher", post(money::redeem_voucher))
        .route("/console/money/auto-top-up", post(money::set_auto_top_up))
        .route(
            "/console/swarms",
            get(swarms::show_swarms).post(swarms::start_swarm),
        )
        .route("/console/swarms/{execution_id}", get(swarms::show_swarm))
        .route(
            "/console/swarms/{execution_id}/state",
            get(swarms::show_swarm_state),
        )
        .route(
            "/console/swarms/{execution_id}/events",
            get(swarms::follow_swarm),
        )
        .route(
            "/console/swarms/{execution_id}/cancel",
            post(swarms::cancel_swarm),
        )
        .route(
            "/console/sign-in",
            get(sign_in::show_sign_in).post(sign_in::sign_in),
        )
        .route(
            "/console/sign-in/development",
            post(sign_in::sign_in_in_development),
        )
        .route("/console/sign-in/link", post(sign_in::sign_in_by_link))
        .route("/console/sign-in/oidc/{index}", get(issuers::begin_sign_in))
        .route("/console/sign-in/callback", get(issuers::end_sign_in))
        .route(
            "/console/sign-in/backchannel-logout",
            post(issuers::receive_logout),
        )
        .route("/console/sign-out", post(sign_in::sign_out))
        .merge(admin::router::routes())
        .route("/console/assets/{name}", get(assets::get_asset))
        .route("/console/{*path}", get(welcome::show_nothing))
        .route_layer(middleware::from_fn(respond::as_pages))
        // A script reads its responses and errors, as those of the API.
        .route(
            "/console/playground/chat",
            post(playground::create_chat_completion),
        )
}

fn organisation_routes() -> Router<App> {
    Router::new()
        .route(
            "/console/organisations",
            get(organisations::show_organisations).post(organisations::create_organisation),
        )
        .route(
            "/console/organisations/switch",
            post(organisations::switch_account),
        )
        .route(
            "/console/organisations/accept",
            post(organisations::accept_invitation),
        )
        .route(
            "/console/organisations/invite",
            post(organisations::create_invitation),
        )
        .route(
            "/console/organisations/invited",
            get(organisations::show_invitation),
        )
        .route(
            "/console/organisations/invitations/{invitation_id}/revoke",
            post(organisations::revoke_invitation),
        )
        .route(
            "/console/organisations/members/{user_id}/role",
            post(organisations::set_role),
        )
        .route(
            "/console/organisations/members/{user_id}/remove",
            post(organisations::remove_member),
        )
        .route(
            "/console/organisations/projects",
            post(organisations::make_project),
        )
        .route(
            "/console/organisations/projects/{project_id}/archive",
            post(organisations::archive_project),
        )
        .route(
            "/console/organisations/budgets",
            post(organisations::set_budget),
        )
        .route(
            "/console/organisations/data-limits",
            post(organisations::set_limits),
        )
        .route(
            "/console/organisations/content-log",
            post(organisations::set_organisation_content_log),
        )
}
