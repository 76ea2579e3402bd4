//! The API's document in OpenAPI 3.1, at `GET /openapi.json` of each listener, with exactly this listener's routes.
//!
//! weir generates the document from annotations in the code: each handler describes its path, parameters, body and
//! responses, and types describe their schemas. [`dialects`] adds the schemas of the clients' dialects, [`finish`] the parts
//! that all operations share, [`links`] the links between operations, and [`examples`] an example of each. Bodies are
//! described as strictly as the code validates them.
//!
//! The router does not register routes from these annotations, because it lists every route on one page:
//! `tests/it/openapi.rs` compares both, and `tests/run --api` validates responses against the document.
//!
//! **Invariant:** the document contains nothing from the configuration: it is equal for all gateways of a version.
//!
//! To describe an endpoint, put `#[utoipa::path]` on its handler, and the handler into the list below.

mod dialects;
mod document;
mod examples;
mod finish;
mod links;
mod listener;
pub mod routes;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{OpenApi, ToSchema};
use weir_accounts::{billing, keys, organisations, payments, vouchers};
use weir_app::privacy;
use weir_inference::{plugins, recordings, sessions};
use weir_request::schemas::vendors;
use weir_swarms::{mcp, swarm, tasks};

pub use self::document::OpenApiDocument;
pub use self::listener::ApiListener;
use crate::{admin, monitoring};

/// Returns the document of a listener's routes; the first call generates it.
pub fn document(surface: ApiListener) -> &'static OpenApiDocument {
    static DOCUMENTS: [LazyLock<OpenApiDocument>; 4] = [
        LazyLock::new(|| generate(ApiListener::Public)),
        LazyLock::new(|| generate(ApiListener::Only)),
        LazyLock::new(|| generate(ApiListener::Internal)),
        LazyLock::new(|| generate(ApiListener::Executor)),
    ];
    let [public, only, internal, executor] = &DOCUMENTS;
    match surface {
        ApiListener::Public => public,
        ApiListener::Only => only,
        ApiListener::Internal => internal,
        ApiListener::Executor => executor,
    }
}

/// Generates the document of a listener's routes.
fn generate(surface: ApiListener) -> OpenApiDocument {
    // The document has only serialisable types.
    let mut whole = serde_json::to_value(Api::openapi()).unwrap_or_default();
    whole["components"]["securitySchemes"] = security_schemes();
    whole["components"]["headers"] = headers();
    if let Some(Value::Object(schemas)) = whole.pointer_mut("/components/schemas") {
        dialects::add(schemas);
    }
    OpenApiDocument::new(&finish::finish(whole, surface))
}

/// The error format outside `/v1` and `/v1beta`.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = Error)]
struct ErrorEnvelope {
    error: ErrorBody,
}

/// The error. Some codes have additional fields, such as the missing credits.
#[derive(Serialize, Deserialize, ToSchema)]
struct ErrorBody {
    /// The stable code, for programs.
    #[schema(pattern = "^[A-Z][A-Z_]*$")]
    code: String,
    /// The class of the error, in OpenAI's terms.
    #[serde(rename = "type")]
    kind: ErrorKind,
    /// The message, for people.
    message: String,
    /// The path of the invalid field, such as `messages[0].content`.
    param: Option<String>,
    /// The request's id, as in the log.
    request_id: String,
}

/// The class of an error, in OpenAI's terms.
#[derive(Serialize, Deserialize, ToSchema)]
enum ErrorKind {
    #[serde(rename = "authentication_error")]
    Authentication,
    #[serde(rename = "permission_error")]
    Permission,
    #[serde(rename = "not_found_error")]
    NotFound,
    #[serde(rename = "rate_limit_error")]
    RateLimit,
    #[serde(rename = "invalid_request_error")]
    InvalidRequest,
    #[serde(rename = "overloaded_error")]
    Overloaded,
    #[serde(rename = "api_error")]
    Api,
}

fn security_schemes() -> Value {
    json!({
        "apiKey": { "type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key, `inf_…`; `X-Goog-Api-Key` is equivalent." },
        "bearerKey": { "type": "http", "scheme": "bearer", "description": "The same key as a bearer token." },
        "identityToken": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "A web user's identity token, together with the attestation token. `/admin` requires an administrator's token.",
        },
        "attestationToken": {
            "type": "apiKey", "in": "header", "name": "X-Identity-AppCheck",
            "description": "The web app's attestation token.",
        },
        "serviceToken": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "A service's OIDC token, with the scope that the operation needs.",
        },
        "paymentSignature": {
            "type": "apiKey", "in": "header", "name": "Payment-Signature",
            "description": "The payment processor's signature of the body.",
        },
    })
}

fn headers() -> Value {
    json!({
        "RequestId": { "description": "The request's id: the client's own id if the request has one.", "schema": { "type": "string" } },
        "RetryAfter": { "description": "Delay before a retry, in seconds.", "schema": { "type": "integer", "minimum": 1 } },
        "Cache": { "description": "The result of the response cache, if it is on.", "schema": { "type": "string", "enum": ["hit", "miss", "bypass"] } },
        "Age": { "description": "The seconds since a repeated response was stored.", "schema": { "type": "integer", "minimum": 0 } },
        "RateLimit": { "description": "The remaining requests of the rate limit.", "schema": { "type": "string" }, "example": "\"requests\";r=59;t=1" },
        "RateLimitPolicy": { "description": "The rate limit, in requests per minute.", "schema": { "type": "string" }, "example": "\"requests\";q=60;w=60" },
    })
}

/// All operations of all listeners.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "weir",
        description = "An inference gateway: chats and images of many providers, with one key and one balance of credits.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        weir_inference::routes::create_chat_completion,
        weir_inference::routes::create_code_completion,
        swarm::model_calls::create_agent_completion,
        weir_inference::vendors::completions::create_completion,
        weir_inference::vendors::responses::create_response,
        weir_inference::vendors::messages::create_message,
        weir_inference::vendors::messages::count_tokens,
        weir_inference::vendors::images::create_image,
        weir_inference::vendors::images::create_image_edit,
        weir_inference::vendors::retrieval::create_embeddings,
        weir_inference::vendors::retrieval::create_ranking,
        weir_inference::vendors::retrieval::create_moderation,
        weir_inference::vendors::audio::create_speech,
        weir_inference::vendors::audio::create_transcription,
        weir_inference::vendors::audio::create_translation,
        weir_inference::vendors::models::list_models,
        weir_inference::vendors::models::get_model,
        weir_inference::vendors::gemini::generate_content,
        weir_inference::vendors::gemini::list_models,
        weir_inference::vendors::gemini::get_model,
        weir_catalog::routes::list_models,
        weir_catalog::routes::get_catalog,
        admin::catalog_layer::get_catalog_layer,
        admin::catalog_layer::list_catalog_layers,
        admin::catalog_layer::check_catalog_layer,
        admin::catalog_layer::replace_catalog_layer,
        admin::catalog_layer::restore_catalog_layer,
        keys::routes::create_api_key,
        keys::routes::list_api_keys,
        keys::routes::set_key_budgets,
        keys::routes::set_key_rates,
        keys::routes::set_key_filter_options,
        keys::routes::set_key_data_limits,
        keys::routes::set_key_content_log,
        keys::routes::revoke_api_key,
        organisations::routes::create_organisation,
        organisations::routes::list_organisations,
        organisations::routes::get_organisation,
        organisations::routes::rename_organisation,
        organisations::routes::delete_organisation,
        organisations::routes::transfer_organisation,
        organisations::members::list_members,
        organisations::members::set_member_role,
        organisations::members::remove_member,
        organisations::invitations::create_invitation,
        organisations::invitations::list_invitations,
        organisations::invitations::revoke_invitation,
        organisations::invitations::accept_invitation,
        organisations::projects::list_projects,
        organisations::projects::create_project,
        organisations::projects::archive_project,
        organisations::service_accounts::list_service_accounts,
        organisations::service_accounts::create_service_account,
        organisations::service_accounts::delete_service_account,
        organisations::budgets::list_part_budgets,
        organisations::budgets::set_part_budgets,
        organisations::rates::list_part_rates,
        organisations::rates::set_part_rates,
        organisations::routes::set_organisation_data_limits,
        organisations::routes::set_organisation_content_log,
        privacy::routes::export_me,
        privacy::routes::erase_me,
        weir_tools::routes::get_webhook_secret,
        billing::routes::get_usage,
        billing::routes::export_usage,
        billing::routes::list_requests,
        billing::routes::get_request,
        billing::routes::get_request_content,
        billing::routes::list_transactions,
        billing::routes::sync_balance,
        vouchers::routes::redeem_voucher,
        payments::auto_top_up::get_auto_top_up,
        payments::auto_top_up::put_auto_top_up,
        payments::routes::create_checkout,
        payments::routes::create_top_up,
        payments::routes::create_portal,
        payments::webhook::receive_event,
        payments::notices::list_notices,
        sessions::routes::show_history,
        sessions::routes::delete_session,
        swarm::routes::create_swarm,
        swarm::routes::list_swarms,
        swarm::routes::list_templates,
        swarm::routes::get_swarm,
        swarm::routes::cancel_swarm,
        swarm::routes::delete_swarm,
        swarm::routes::stream_events,
        swarm::routes::run_swarm,
        tasks::routes::create_task,
        tasks::routes::list_tasks,
        tasks::routes::get_task,
        tasks::routes::replace_task,
        tasks::routes::delete_task,
        tasks::routes::trigger_execution,
        tasks::routes::encrypt_credential,
        tasks::routes::delete_credential,
        tasks::routes::execute_task,
        admin::routes::get_platform_usage,
        admin::routes::list_model_economics,
        admin::overview::get_overview,
        admin::requests::list_requests,
        admin::requests::get_request_content,
        admin::user_usage::export_usage,
        admin::user_usage::get_user_usage,
        admin::user_usage::list_user_requests,
        admin::user_usage::get_user_request,
        admin::user_usage::list_user_transactions,
        admin::keys::list_keys,
        admin::keys::create_key,
        admin::keys::revoke_key,
        admin::lockouts::list_lockouts,
        admin::lockouts::clear_lockout,
        admin::events::list_events,
        admin::users::list_users,
        admin::users::get_user,
        privacy::routes::export_user,
        privacy::routes::erase_user,
        admin::users::disable_user,
        admin::users::enable_user,
        admin::users::grant_admin,
        admin::users::revoke_admin,
        admin::users::set_plan,
        admin::users::set_filter_options,
        admin::users::top_up,
        admin::users::adjust,
        admin::users::set_budgets,
        vouchers::admin::create_voucher,
        vouchers::admin::list_vouchers,
        vouchers::admin::revoke_voucher,
        payments::admin::list_events,
        payments::admin::retry_event,
        swarm::admin::list_swarms,
        swarm::admin::cancel_swarm,
        recordings::routes::list_recordings,
        recordings::routes::get_recording,
        recordings::routes::begin_recording,
        recordings::routes::forget_recording,
        recordings::routes::stop_recording,
        recordings::routes::list_exchanges,
        plugins::routes::list_plugins,
        plugins::routes::get_slot,
        plugins::routes::install_plugin,
        plugins::routes::activate_plugin,
        plugins::routes::roll_back_plugin,
        plugins::routes::set_slot_policy,
        plugins::routes::remove_plugin,
        plugins::routes::list_events,
        plugins::routes::list_slot_events,
        mcp::routes::answer_message,
        weir_tools::remote::routes::list_tools,
        weir_tools::remote::routes::approve_tool,
        monitoring::health::get_health,
        monitoring::health::get_readiness,
        monitoring::metrics::get_metrics,
        routes::get_document,
    ),
    components(schemas(
        ErrorEnvelope,
        vendors::OpenAiError,
        vendors::AnthropicError,
        vendors::GoogleError,
        vendors::McpError,
        vendors::GeminiTokenCount,
    )),
    tags(
        (name = "models", description = "Models, and requests to them"),
        (name = "keys", description = "The user's own API keys"),
        (name = "organisations", description = "Accounts with several members, projects and budgets"),
        (name = "privacy", description = "The export and the erasure of the user's own data"),
        (name = "sessions", description = "Conversations that weir keeps for an hour"),
        (name = "usage", description = "Usage and its cost"),
        (name = "billing", description = "Plans, credits and payments"),
        (name = "swarms", description = "Agents that run one after another under one budget"),
        (name = "tasks", description = "Swarms that run repeatedly, on a schedule or on request"),
        (name = "tools", description = "Tools over the Model Context Protocol"),
        (name = "administration", description = "For administrators"),
        (name = "plugins", description = "For operators: the components in their slots, and recordings"),
        (name = "service", description = "The gateway itself, and the operator's other services"),
    )
)]
struct Api;
