//! The document of the API, in OpenAPI 3.1, at `GET /openapi.json` of each listener: the routes that this listener has, and no
//! others.
//!
//! It is made of what stands beside the code: each handler says its path, parameters, body and answers, and types say their
//! shapes. [`finish`] adds what all operations have in common, and [`links`] which of them take what another one has answered.
//! Bodies that are checked are described as strictly as the code checks them; vendors' dialects loosely, in [`vendors`].
//!
//! The router does not register routes by these descriptions, since it is every route on one page: `tests/it/openapi.rs` holds
//! the two against each other, and `tests/run --api` holds answers against the document.
//!
//! **Invariant:** nothing of a configuration is in it: it is the same for every gateway of a version.
//!
//! To describe an endpoint, put `#[utoipa::path]` on its handler, and the handler into the list below.

pub mod bodies;
mod finish;
mod links;
pub mod parameters;
pub mod routes;
pub mod schemas;
pub mod vendors;

use std::sync::LazyLock;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use utoipa::{OpenApi, ToSchema};
use weir_storage::ids::Hex;

use crate::{
    admin, billing, catalog, health, identity, inference, mcp, metrics, payments, plugins,
    recordings, sessions, swarm, tasks, tools, vouchers,
};

/// Who is served by a listener: each has its own routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// Everybody.
    Public,
    /// Everybody, where there is no other listener: the figures are here, too.
    Only,
    /// Other services.
    Internal,
    /// Other services, by an executor.
    Executor,
}

impl Surface {
    fn serves(self, path: &str) -> bool {
        let is_for_plugins = path.starts_with("/admin/plugins");
        let is_health = path.starts_with("/health");
        let is_internal = path.starts_with("/internal/");
        let of_executor = ["/internal/agent/swarm", "/internal/agent/execute"].contains(&path);
        match (self, path) {
            (_, "/openapi.json") => true,
            (_, "/metrics") => self != Self::Public,
            (Self::Public | Self::Only, _) => !is_internal,
            (Self::Internal, _) => is_for_plugins || is_internal && !of_executor,
            (Self::Executor, _) => is_health || of_executor,
        }
    }
}

/// The document as it is sent.
pub(crate) struct Document {
    /// JSON.
    pub(crate) text: Bytes,
    /// Its digest, as clients ask by it whether theirs is still the same.
    pub(crate) etag: String,
}

/// The document of a listener's routes; made when it is asked for first.
pub(crate) fn document(surface: Surface) -> &'static Document {
    static DOCUMENTS: [LazyLock<Document>; 4] = [
        LazyLock::new(|| Document::of(Surface::Public)),
        LazyLock::new(|| Document::of(Surface::Only)),
        LazyLock::new(|| Document::of(Surface::Internal)),
        LazyLock::new(|| Document::of(Surface::Executor)),
    ];
    let [public, only, internal, executor] = &DOCUMENTS;
    match surface {
        Surface::Public => public,
        Surface::Only => only,
        Surface::Internal => internal,
        Surface::Executor => executor,
    }
}

impl Document {
    fn of(surface: Surface) -> Self {
        // Nothing in it can fail to be written.
        let mut whole = serde_json::to_value(Api::openapi()).unwrap_or_default();
        whole["components"]["securitySchemes"] = security_schemes();
        whole["components"]["headers"] = headers();
        let text = finish::finish(whole, surface).to_string();
        let digest: [u8; 32] = Sha256::digest(&text).into();
        Self {
            etag: format!("\"{}\"", Hex(&digest[..16])),
            text: text.into(),
        }
    }
}

/// Errors are told in this shape everywhere but under `/v1`.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = Error)]
struct ErrorEnvelope {
    error: ErrorBody,
}

/// What is wrong. Some codes have further fields, such as the credits that are missing.
#[derive(Serialize, Deserialize, ToSchema)]
struct ErrorBody {
    /// Stable, for programs.
    #[schema(pattern = "^[A-Z][A-Z_]*$")]
    code: String,
    /// The class of the error, in OpenAI's words.
    #[serde(rename = "type")]
    kind: ErrorKind,
    /// For people.
    message: String,
    /// The path of the field that is wrong, such as `messages[0].content`.
    param: Option<String>,
    /// The request's id, as the log has it.
    request_id: String,
}

/// The class of an error, in OpenAI's words.
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
        "apiKey": { "type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key, `inf_…`." },
        "bearerKey": { "type": "http", "scheme": "bearer", "description": "The same key as a bearer token." },
        "identityToken": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "A web user's identity token, which goes with the attestation token. For `/admin`, of an administrator.",
        },
        "attestationToken": {
            "type": "apiKey", "in": "header", "name": "X-Identity-AppCheck",
            "description": "The web app's attestation token.",
        },
        "serviceToken": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "Another service's token by OIDC, with the scope that the operation needs.",
        },
        "paymentSignature": {
            "type": "apiKey", "in": "header", "name": "Payment-Signature",
            "description": "The payment processor's signature of the body.",
        },
    })
}

fn headers() -> Value {
    json!({
        "RequestId": { "description": "The request's id: the client's own if it has sent one.", "schema": { "type": "string" } },
        "RetryAfter": { "description": "When trying again makes sense, in seconds.", "schema": { "type": "integer", "minimum": 1 } },
        "RateLimit": { "description": "What is left of the rate.", "schema": { "type": "string" }, "example": "\"requests\";r=59;t=1" },
        "RateLimitPolicy": { "description": "The rate: requests in a minute.", "schema": { "type": "string" }, "example": "\"requests\";q=60;w=60" },
    })
}

/// All operations, whoever serves them.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "weir",
        description = "An inference gateway: chats and images of many providers, with one key and one balance of credits.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        inference::routes::create_chat_completion,
        inference::routes::create_code_completion,
        inference::routes::create_agent_completion,
        inference::vendors::responses::create_response,
        inference::vendors::messages::create_message,
        inference::vendors::messages::count_tokens,
        inference::vendors::images::create_image,
        inference::vendors::images::create_image_edit,
        inference::vendors::models::list_models,
        inference::vendors::models::get_model,
        catalog::routes::list_models,
        catalog::routes::get_catalog,
        identity::routes::create_api_key,
        identity::routes::list_api_keys,
        identity::routes::set_key_budgets,
        identity::routes::revoke_api_key,
        tools::routes::get_webhook_secret,
        billing::routes::get_usage,
        billing::routes::export_usage,
        billing::routes::list_requests,
        billing::routes::get_request,
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
        admin::users::disable_user,
        admin::users::enable_user,
        admin::users::grant_admin,
        admin::users::revoke_admin,
        admin::users::set_plan,
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
        mcp::remote::routes::list_tools,
        mcp::remote::routes::approve_tool,
        health::get_health,
        health::get_readiness,
        metrics::routes::get_metrics,
        routes::get_document,
    ),
    components(schemas(
        ErrorEnvelope,
        vendors::OpenAiError,
        vendors::AnthropicError,
        vendors::McpError,
    )),
    tags(
        (name = "models", description = "Models, and what is asked of them"),
        (name = "keys", description = "One's own API keys"),
        (name = "sessions", description = "Conversations that weir keeps for an hour"),
        (name = "usage", description = "What was used, and what it has cost"),
        (name = "billing", description = "Plans, credits and payments"),
        (name = "swarms", description = "Agents that run one after another under one budget"),
        (name = "tasks", description = "Swarms that are started again and again"),
        (name = "tools", description = "Tools, as the Model Context Protocol has them"),
        (name = "administration", description = "For administrators"),
        (name = "plugins", description = "For operators: the components in their slots, and what is recorded of them"),
        (name = "service", description = "The gateway itself, and other services of the operator's"),
    )
)]
struct Api;
