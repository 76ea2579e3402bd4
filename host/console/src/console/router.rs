//! Every endpoint of the console, with the permission that its page needs.

use std::sync::LazyLock;

use axum::middleware;
use weir_app::App;
use weir_identity::endpoints::Access::{Open, Session};
use weir_identity::endpoints::{Endpoints, get, post};
use weir_identity::roles::Permission::{Belong, Pay, ReadUsage, ReadWork, UseModels};

use super::{
    admin, assets, docs, issuers, keys, money, organisations, overview, playground, requests,
    respond, sign_in, swarms, usage, welcome,
};
use crate::openapi::OpenApiDocument;

/// Returns the console's endpoints, the welcome page at `/`, and the reference of a listener's document at `/docs`.
pub fn endpoints(document: &'static LazyLock<OpenApiDocument>) -> Endpoints<App> {
    Endpoints::new()
        .row(
            Open,
            [
                get("/", welcome::show_welcome),
                get("/console/sign-in", sign_in::show_sign_in),
                post("/console/sign-in", sign_in::sign_in),
                post(
                    "/console/sign-in/development",
                    sign_in::sign_in_in_development,
                ),
                post("/console/sign-in/link", sign_in::sign_in_by_link),
                get("/console/sign-in/oidc/{index}", issuers::begin_sign_in),
                get("/console/sign-in/callback", issuers::end_sign_in),
                post(
                    "/console/sign-in/backchannel-logout",
                    issuers::receive_logout,
                ),
                get("/console/assets/{name}", assets::get_asset),
                get("/console/{*path}", welcome::show_nothing),
            ],
        )
        .row(
            Session(Belong),
            [
                get("/console", overview::show_overview),
                post("/console/sign-out", sign_in::sign_out),
            ],
        )
        .row(
            Session(UseModels),
            [
                get("/console/playground", playground::show_playground),
                get("/console/keys", keys::show_keys),
                post("/console/keys", keys::make_own_key),
                get("/console/keys/made", keys::show_made_key),
                post("/console/keys/{key_id}/revoke", keys::revoke_key),
                post(
                    "/console/keys/{key_id}/content-log",
                    keys::set_key_content_log,
                ),
                post("/console/swarms", swarms::start_swarm),
                post(
                    "/console/swarms/{execution_id}/cancel",
                    swarms::cancel_swarm,
                ),
            ],
        )
        .row(
            Session(ReadWork),
            [
                get("/console/swarms", swarms::show_swarms),
                get("/console/swarms/{execution_id}", swarms::show_swarm),
                get(
                    "/console/swarms/{execution_id}/state",
                    swarms::show_swarm_state,
                ),
                get(
                    "/console/swarms/{execution_id}/events",
                    swarms::follow_swarm,
                ),
            ],
        )
        .row(
            Session(ReadUsage),
            [
                get("/console/usage", usage::show_usage),
                get("/console/requests", requests::show_requests),
                get("/console/requests/table.csv", requests::download_requests),
                get("/console/requests/{request_id}", requests::show_request),
                get("/console/money", money::show_money),
                get("/console/money/statement.csv", money::download_statement),
            ],
        )
        .row(
            Session(Pay),
            [
                post("/console/money/plan", money::buy_plan),
                post("/console/money/top-up", money::buy_credits),
                post("/console/money/portal", money::open_portal),
                post("/console/money/voucher", money::redeem_voucher),
                post("/console/money/auto-top-up", money::set_auto_top_up),
            ],
        )
        .merge(docs::endpoints(document))
        .merge(organisation_endpoints())
        .merge(admin::router::endpoints())
        .map_router(|router| router.route_layer(middleware::from_fn(respond::as_pages)))
        // A script reads its responses and errors, as those of the API.
        .row(
            Session(UseModels),
            post(
                "/console/playground/chat",
                playground::create_chat_completion,
            ),
        )
}

fn organisation_endpoints() -> Endpoints<App> {
    Endpoints::new().row(
        Session(Belong),
        [
            get("/console/organisations", organisations::show_organisations),
            post("/console/organisations", organisations::create_organisation),
            post(
                "/console/organisations/switch",
                organisations::switch_account,
            ),
            post(
                "/console/organisations/accept",
                organisations::accept_invitation,
            ),
            post(
                "/console/organisations/invite",
                organisations::create_invitation,
            ),
            get(
                "/console/organisations/invited",
                organisations::show_invitation,
            ),
            post(
                "/console/organisations/invitations/{invitation_id}/revoke",
                organisations::revoke_invitation,
            ),
            post(
                "/console/organisations/members/{user_id}/role",
                organisations::set_role,
            ),
            post(
                "/console/organisations/members/{user_id}/remove",
                organisations::remove_member,
            ),
            post(
                "/console/organisations/projects",
                organisations::make_project,
            ),
            post(
                "/console/organisations/projects/{project_id}/archive",
                organisations::archive_project,
            ),
            post("/console/organisations/budgets", organisations::set_budget),
            post(
                "/console/organisations/data-limits",
                organisations::set_limits,
            ),
            post(
                "/console/organisations/content-log",
                organisations::set_organisation_content_log,
            ),
        ],
    )
}
