//! All routes on one page.

use axum::Router;
use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{delete, get, patch, post, put};
use http::{HeaderName, HeaderValue, Uri};
use weir_accounts::payments::{auto_top_up, local};
use weir_accounts::{billing, keys, organisations, payments, vouchers};
use weir_app::App;
use weir_app::privacy;
use weir_app::request_layer::request_layer;
use weir_console::openapi::{self, ApiListener};
use weir_console::{admin, console, monitoring};
use weir_errors::{ApiError, ErrorCode};
use weir_identity::admin::{AdminCaller, WithoutGateway};
use weir_identity::scim;
use weir_inference::vendors::{
    audio, completions, gemini, images, messages, models, responses, retrieval,
};
use weir_inference::{plugins, recordings, sessions};
use weir_request::node::Core;
use weir_swarms::{mcp, swarm, tasks};

/// The header with the database behind an admin socket, for commands to show; passwords masked.
pub const DATABASE: HeaderName = HeaderName::from_static("x-weir-database");

/// Returns the routes of the public service.
pub fn public(app: App) -> Router {
    let routes = Router::new()
        .route(
            "/chat",
            post(weir_inference::routes::create_chat_completion),
        )
        .route(
            "/code",
            post(weir_inference::routes::create_code_completion),
        )
        .route(
            "/v1/chat/completions",
            post(weir_inference::routes::create_chat_completion),
        )
        .route("/v1/completions", post(completions::create_completion))
        .route("/v1/responses", post(responses::create_response))
        .route("/v1/messages", post(messages::create_message))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/images/generations", post(images::create_image))
        .route("/v1/images/edits", post(images::create_image_edit))
        .route("/v1/embeddings", post(retrieval::create_embeddings))
        .route("/v1/rerank", post(retrieval::create_ranking))
        .route("/v2/rerank", post(retrieval::create_ranking))
        .route("/v1/moderations", post(retrieval::create_moderation))
        .route("/v1/audio/speech", post(audio::create_speech))
        .route(
            "/v1/audio/transcriptions",
            post(audio::create_transcription),
        )
        .route("/v1/audio/translations", post(audio::create_translation))
        .route(
            "/api-keys",
            post(keys::routes::create_api_key).get(keys::routes::list_api_keys),
        )
        .route("/api-keys/{key_id}", delete(keys::routes::revoke_api_key))
        .route(
            "/api-keys/{key_id}/budgets",
            put(keys::routes::set_key_budgets),
        )
        .route("/api-keys/{key_id}/rates", put(keys::routes::set_key_rates))
        .route(
            "/api-keys/{key_id}/filter-options",
            put(keys::routes::set_key_filter_options),
        )
        .route(
            "/api-keys/{key_id}/data-limits",
            put(keys::routes::set_key_data_limits),
        )
        .route(
            "/api-keys/{key_id}/content-log",
            put(keys::routes::set_key_content_log),
        )
        .route(
            "/webhooks/secret",
            get(weir_tools::routes::get_webhook_secret),
        )
        .route("/usage/me", get(billing::routes::get_usage))
        .route("/usage/export", get(billing::routes::export_usage))
        .route("/usage/requests", get(billing::routes::list_requests))
        .route(
            "/usage/requests/{request_id}",
            get(billing::routes::get_request),
        )
        .route(
            "/usage/requests/{request_id}/content",
            get(billing::routes::get_request_content),
        )
        .route(
            "/billing/transactions",
            get(billing::routes::list_transactions),
        )
        .route("/billing/redeem", post(vouchers::routes::redeem_voucher))
        .route("/billing/sync-balance", post(billing::routes::sync_balance))
        .route(
            "/billing/auto-topup",
            get(auto_top_up::get_auto_top_up).put(auto_top_up::put_auto_top_up),
        )
        .merge(payment_routes())
        .merge(organisation_routes())
        .route("/billing/webhook", post(payments::webhook::receive_event))
        .route("/billing/notices", get(payments::notices::list_notices))
        .merge(privacy_routes())
        .merge(session_routes())
        .merge(swarm_routes())
        .merge(task_routes())
        .route("/mcp", post(mcp::routes::answer_message))
        .merge(admin_routes())
        .merge(recording_routes())
        .merge(remote_tool_routes())
        .merge(plugin_routes())
        .merge(console::router::routes())
        .merge(scim::router::routes())
        .route("/models", get(weir_catalog::routes::list_models))
        .route("/v1/models", get(models::list_models))
        .route(
            "/v1/models/{*id}",
            get(models::get_model).post(gemini::generate_content),
        )
        .route("/v1beta/models", get(gemini::list_models))
        .route(
            "/v1beta/models/{*id}",
            get(gemini::get_model).post(gemini::generate_content),
        )
        .route("/health", get(monitoring::health::get_health))
        .route("/health/ready", get(monitoring::health::get_readiness));
    let routes = match app.config.is_dev() {
        true => routes.merge(development_routes()),
        false => routes,
    };
    // The metrics are on the internal listener if one exists.
    let routes = match app.config.internal_listen {
        Some(_) => routes.merge(document_route(ApiListener::Public)),
        None => routes
            .route("/metrics", get(monitoring::metrics::get_public_metrics))
            .merge(document_route(ApiListener::Only)),
    };
    finish(routes, app)
}

/// Returns the routes for services, on their own port.
pub fn internal(app: App) -> Router {
    let routes = Router::new().route(
        "/internal/agent/code",
        post(swarm::model_calls::create_agent_completion),
    );
    let routes = routes.merge(plugin_routes()).merge(metrics_route());
    finish(routes.merge(document_route(ApiListener::Internal)), app)
}

/// Returns an executor's routes for services, on their own port.
pub fn executor(app: App) -> Router {
    let routes = Router::new()
        .route("/internal/agent/swarm", post(swarm::routes::run_swarm))
        .route("/internal/agent/execute", post(tasks::routes::execute_task))
        .route("/health", get(monitoring::health::get_health))
        .route("/health/ready", get(monitoring::health::get_readiness));
    let routes = routes.merge(metrics_route());
    finish(routes.merge(document_route(ApiListener::Executor)), app)
}

/// Returns the routes of the admin socket.
pub fn local(app: App) -> Router {
    let routes = admin_routes()
        .merge(recording_routes())
        .merge(remote_tool_routes())
        .merge(plugin_routes())
        .merge(metrics_route())
        .route("/local/gateway", get(admin::gateway::get_gateway))
        .route(
            "/local/console-link",
            post(admin::gateway::create_console_link),
        );
    let name_database = middleware::from_fn_with_state(app.clone(), name_database);
    finish(routes, app).layer(name_database)
}

async fn name_database(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Ok(url) = HeaderValue::try_from(app.config.shown_database()) {
        response.headers_mut().insert(DATABASE, url);
    }
    response
}

/// Returns the routes for a command while no gateway runs. Errors stay as extensions of their responses.
pub fn without_gateway(core: Core) -> Router {
    user_and_key_routes().with_state(WithoutGateway(core))
}

fn metrics_route() -> Router<App> {
    Router::new().route("/metrics", get(monitoring::metrics::get_metrics))
}

/// Returns the route of a listener's OpenAPI document.
fn document_route(surface: ApiListener) -> Router<App> {
    Router::new().route(
        "/openapi.json",
        get(move |headers| openapi::routes::get_document(openapi::document(surface), headers)),
    )
}

/// Returns the routes of payments.
fn payment_routes() -> Router<App> {
    Router::new()
        .route("/billing/checkout", post(payments::routes::create_checkout))
        .route("/billing/topup", post(payments::routes::create_top_up))
        .route("/billing/portal", post(payments::routes::create_portal))
}

/// Returns the pages of development mode's payment processor.
fn development_routes() -> Router<App> {
    Router::new()
        .route("/dev/payments/{page}", get(local::show_page))
        .route(
            "/dev/payments/checkout/{session_id}",
            get(local::show_checkout),
        )
        .route(
            "/dev/payments/checkout/{session_id}/{act}",
            post(local::act_on_checkout),
        )
        .route("/dev/payments/portal/{portal_id}", get(local::show_portal))
        .route(
            "/dev/payments/portal/{portal_id}/{act}",
            post(local::act_on_portal),
        )
}

/// Returns the users' routes of organisations.
fn organisation_routes() -> Router<App> {
    let routes = Router::new()
        .route(
            "/organisations",
            post(organisations::routes::create_organisation)
                .get(organisations::routes::list_organisations),
        )
        .route(
            "/organisations/{organisation_id}",
            get(organisations::routes::get_organisation)
                .patch(organisations::routes::rename_organisation)
                .delete(organisations::routes::delete_organisation),
        )
        .route(
            "/organisations/{organisation_id}/transfer",
            post(organisations::routes::transfer_organisation),
        )
        .route(
            "/organisations/{organisation_id}/members",
            get(organisations::members::list_members),
        )
        .route(
            "/organisations/{organisation_id}/members/{user_id}",
            patch(organisations::members::set_member_role)
                .delete(organisations::members::remove_member),
        );
    routes
        .route(
            "/organisations/{organisation_id}/invitations",
            post(organisations::invitations::create_invitation)
                .get(organisations::invitations::list_invitations),
        )
        .route(
            "/organisations/{organisation_id}/invitations/{invitation_id}",
            delete(organisations::invitations::revoke_invitation),
        )
        .route(
            "/invitations/accept",
            post(organisations::invitations::accept_invitation),
        )
        .route(
            "/organisations/{organisation_id}/projects",
            post(organisations::projects::create_project)
                .get(organisations::projects::list_projects),
        )
        .route(
            "/organisations/{organisation_id}/projects/{project_id}",
            delete(organisations::projects::archive_project),
        )
        .route(
            "/organisations/{organisation_id}/service-accounts",
            post(organisations::service_accounts::create_service_account)
                .get(organisations::service_accounts::list_service_accounts),
        )
        .route(
            "/organisations/{organisation_id}/service-accounts/{user_id}",
            delete(organisations::service_accounts::delete_service_account),
        )
        .route(
            "/organisations/{organisation_id}/budgets",
            get(organisations::budgets::list_part_budgets)
                .put(organisations::budgets::set_part_budgets),
        )
        .route(
            "/organisations/{organisation_id}/rates",
            get(organisations::rates::list_part_rates).put(organisations::rates::set_part_rates),
        )
        .route(
            "/organisations/{organisation_id}/data-limits",
            put(organisations::routes::set_organisation_data_limits),
        )
        .route(
            "/organisations/{organisation_id}/content-log",
            put(organisations::routes::set_organisation_content_log),
        )
}

/// Returns the users' routes of their own data.
fn privacy_routes() -> Router<App> {
    Router::new()
        .route("/users/me", delete(privacy::routes::erase_me))
        .route("/users/me/export", get(privacy::routes::export_me))
}

/// Returns the users' routes of sessions.
fn session_routes() -> Router<App> {
    Router::new()
        .route("/session/{id}/history", get(sessions::routes::show_history))
        .route("/session/{id}", delete(sessions::routes::delete_session))
}

/// Returns the users' routes of swarms.
fn swarm_routes() -> Router<App> {
    Router::new()
        .route(
            "/swarms",
            post(swarm::routes::create_swarm).get(swarm::routes::list_swarms),
        )
        .route("/swarms/templates", get(swarm::routes::list_templates))
        .route(
            "/swarms/{execution_id}",
            get(swarm::routes::get_swarm).delete(swarm::routes::delete_swarm),
        )
        .route(
            "/swarms/{execution_id}/cancel",
            post(swarm::routes::cancel_swarm),
        )
        .route(
            "/swarms/{execution_id}/events",
            get(swarm::routes::stream_events),
        )
}

/// Returns the users' routes of tasks, and the web app's functions for them.
fn task_routes() -> Router<App> {
    Router::new()
        .route(
            "/api/agent/tasks",
            post(tasks::routes::create_task).get(tasks::routes::list_tasks),
        )
        .route(
            "/api/agent/tasks/{task_id}",
            get(tasks::routes::get_task)
                .put(tasks::routes::replace_task)
                .delete(tasks::routes::delete_task),
        )
        .route(
            "/api/agent/encrypt-credential",
            post(tasks::routes::encrypt_credential),
        )
        .route(
            "/api/agent/delete-credential",
            post(tasks::routes::delete_credential),
        )
        .route(
            "/api/agent/trigger-execution",
            post(tasks::routes::trigger_execution),
        )
}

/// Returns the administrators' routes.
fn admin_routes() -> Router<App> {
    Router::new()
        .route("/admin/usage", get(admin::routes::get_platform_usage))
        .route("/admin/overview", get(admin::overview::get_overview))
        .route("/admin/requests", get(admin::requests::list_requests))
        .route(
            "/admin/requests/{request_id}/content",
            get(admin::requests::get_request_content),
        )
        .route("/admin/usage/export", get(admin::user_usage::export_usage))
        .route(
            "/admin/model-economics",
            get(admin::routes::list_model_economics),
        )
        .route(
            "/admin/users/{user_id}/usage",
            get(admin::user_usage::get_user_usage),
        )
        .route(
            "/admin/users/{user_id}/usage/requests",
            get(admin::user_usage::list_user_requests),
        )
        .route(
            "/admin/users/{user_id}/usage/requests/{request_id}",
            get(admin::user_usage::get_user_request),
        )
        .route(
            "/admin/users/{user_id}/transactions",
            get(admin::user_usage::list_user_transactions),
        )
        .route("/admin/catalog", get(weir_catalog::routes::get_catalog))
        .route(
            "/admin/catalog/layer",
            get(admin::catalog_layer::get_catalog_layer)
                .put(admin::catalog_layer::replace_catalog_layer),
        )
        .route(
            "/admin/catalog/layer/check",
            post(admin::catalog_layer::check_catalog_layer),
        )
        .route(
            "/admin/catalog/layer/restore",
            post(admin::catalog_layer::restore_catalog_layer),
        )
        .route(
            "/admin/catalog/layers",
            get(admin::catalog_layer::list_catalog_layers),
        )
        .route(
            "/admin/users/{user_id}/export",
            get(privacy::routes::export_user),
        )
        .route("/admin/keys", post(admin::keys::create_key))
        .route("/admin/vouchers", post(vouchers::admin::create_voucher))
        .merge(user_and_key_routes())
}

/// Returns the administrators' routes of users, keys and their records: with a gateway or without.
fn user_and_key_routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
    AdminCaller: FromRequestParts<S, Rejection = ApiError>,
{
    Router::new()
        .route("/admin/users", get(admin::users::list_users))
        .route(
            "/admin/users/{user_id}",
            get(admin::users::get_user).delete(privacy::routes::erase_user),
        )
        .route(
            "/admin/users/{user_id}/disable",
            post(admin::users::disable_user),
        )
        .route(
            "/admin/users/{user_id}/enable",
            post(admin::users::enable_user),
        )
        .route("/admin/users/{user_id}/plan", post(admin::users::set_plan))
        .route(
            "/admin/users/{user_id}/filter-options",
            put(admin::users::set_filter_options),
        )
        .route(
            "/admin/users/{user_id}/budgets",
            post(admin::users::set_budgets),
        )
        .route("/admin/users/{user_id}/top-up", post(admin::users::top_up))
        .route("/admin/users/{user_id}/adjust", post(admin::users::adjust))
        .route("/admin/payments/events", get(payments::admin::list_events))
        .route(
            "/admin/payments/events/{event_id}/retry",
            post(payments::admin::retry_event),
        )
        .route(
            "/admin/users/{user_id}/grant-admin",
            post(admin::users::grant_admin),
        )
        .route(
            "/admin/users/{user_id}/revoke-admin",
            post(admin::users::revoke_admin),
        )
        .route("/admin/keys", get(admin::keys::list_keys))
        .route("/admin/keys/{key_id}", delete(admin::keys::revoke_key))
        .route("/admin/vouchers", get(vouchers::admin::list_vouchers))
        .route(
            "/admin/vouchers/{voucher_id}",
            delete(vouchers::admin::revoke_voucher),
        )
        .route("/admin/lockouts", get(admin::lockouts::list_lockouts))
        .route(
            "/admin/lockouts/{address}",
            delete(admin::lockouts::clear_lockout),
        )
        .route("/admin/audit", get(admin::events::list_events))
        .route("/admin/swarms", get(swarm::admin::list_swarms))
        .route(
            "/admin/swarms/{execution_id}/cancel",
            post(swarm::admin::cancel_swarm),
        )
}

/// Returns the routes of recordings, for administrators and services, on either port.
fn recording_routes() -> Router<App> {
    Router::new()
        .route(
            "/admin/recordings",
            get(recordings::routes::list_recordings),
        )
        .route(
            "/admin/recordings/{slot}",
            get(recordings::routes::get_recording)
                .put(recordings::routes::begin_recording)
                .delete(recordings::routes::forget_recording),
        )
        .route(
            "/admin/recordings/{slot}/stop",
            post(recordings::routes::stop_recording),
        )
        .route(
            "/admin/recordings/{slot}/exchanges",
            get(recordings::routes::list_exchanges),
        )
}

/// Returns the operators' routes of remote MCP tools.
fn remote_tool_routes() -> Router<App> {
    Router::new()
        .route(
            "/admin/mcp/tools",
            get(weir_tools::remote::routes::list_tools),
        )
        .route(
            "/admin/mcp/tools/{server}/{tool}/approve",
            post(weir_tools::remote::routes::approve_tool),
        )
}

fn plugin_routes() -> Router<App> {
    Router::new()
        .route("/admin/plugins", get(plugins::routes::list_plugins))
        .route("/admin/plugins/events", get(plugins::routes::list_events))
        .route(
            "/admin/plugins/{slot}",
            get(plugins::routes::get_slot).put(plugins::routes::install_plugin),
        )
        .route(
            "/admin/plugins/{slot}/activate",
            post(plugins::routes::activate_plugin),
        )
        .route(
            "/admin/plugins/{slot}/policy",
            put(plugins::routes::set_slot_policy),
        )
        .route(
            "/admin/plugins/{slot}/rollback",
            post(plugins::routes::roll_back_plugin),
        )
        .route(
            "/admin/plugins/{slot}/events",
            get(plugins::routes::list_slot_events),
        )
        .route(
            "/admin/plugins/{slot}/{digest}",
            delete(plugins::routes::remove_plugin),
        )
}

fn finish(routes: Router<App>, app: App) -> Router {
    routes
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), request_layer))
        .with_state(app)
}

async fn unknown_route(uri: Uri) -> ApiError {
    let message = match vendors_path(uri.path()) {
        Some(path) => format!(
            "This path does not exist; you may mean {path}. The base URL for OpenAI's SDKs ends in /v1; the base URL for \
             Anthropic's and Google's SDKs has no version."
        ),
        None => "This path does not exist.".to_owned(),
    };
    ApiError::new(ErrorCode::NotFound, message)
}

/// Returns the vendor's endpoint for a path with a missing or a repeated version, from an incorrect base URL.
fn vendors_path(path: &str) -> Option<&'static str> {
    if path.ends_with("/v1beta/models") || path.contains("/v1beta/models/") {
        return Some("/v1beta/models");
    }
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let path = path.strip_prefix("/v1").unwrap_or(path);
    match path {
        "/chat/completions" => Some("/v1/chat/completions"),
        "/completions" => Some("/v1/completions"),
        "/images/generations" => Some("/v1/images/generations"),
        "/images/edits" => Some("/v1/images/edits"),
        "/embeddings" => Some("/v1/embeddings"),
        "/rerank" => Some("/v1/rerank"),
        "/moderations" => Some("/v1/moderations"),
        "/audio/speech" => Some("/v1/audio/speech"),
        "/audio/transcriptions" => Some("/v1/audio/transcriptions"),
        "/audio/translations" => Some("/v1/audio/translations"),
        "/responses" => Some("/v1/responses"),
        "/messages" => Some("/v1/messages"),
        "/messages/count_tokens" => Some("/v1/messages/count_tokens"),
        _ if path.starts_with("/models") => Some("/v1/models"),
        _ => None,
    }
}

async fn wrong_method() -> ApiError {
    ApiError::new(
        ErrorCode::MethodNotAllowed,
        "This path does not support the method; the Allow header lists the supported methods.",
    )
}
