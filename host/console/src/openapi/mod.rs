//! The API's document in OpenAPI 3.1, at `GET /openapi.json` of each listener, with exactly this listener's routes.
//!
//! weir generates the document from annotations in the code: each handler describes its path, parameters, body and
//! responses, and types describe their schemas. [`dialects`] adds the schemas of the clients' dialects, [`finish`] the parts
//! that all operations share, [`links`] the links between operations, and [`examples`] an example of each. Bodies are
//! described as strictly as the code validates them.
//!
//! The operations are those of the listener's own rows ([`weir_identity::endpoints`]): a route cannot lack one, or have
//! another path. `tests/run --api` validates responses against the document.
//!
//! **Invariant:** the document contains nothing from the configuration: it is equal for all gateways of a version.
//!
//! To describe an endpoint, put `#[utoipa::path]` on its handler. The row of the endpoint has its access, from which the
//! document derives the security requirements.

mod dialects;
mod document;
mod examples;
mod finish;
mod links;
pub mod routes;

use std::sync::LazyLock;

use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{OpenApi, ToSchema};
use weir_app::App;
use weir_identity::endpoints::{Access, Endpoint, Endpoints};
use weir_identity::handlers;
use weir_request::schemas::vendors;

pub use self::document::OpenApiDocument;
use self::routes::get_document;

/// Returns the endpoint of a listener's document.
pub fn endpoints(document: &'static LazyLock<OpenApiDocument>) -> Endpoints<App> {
    let get = move |headers: HeaderMap| get_document(document, headers);
    Endpoints::new().row(Access::Open, handlers!(routes::get_document => get))
}

/// Generates the document of a listener's endpoints.
pub fn generate(endpoints: &[Endpoint]) -> OpenApiDocument {
    let mut api = Api::openapi();
    let mut schemas = Vec::new();
    for endpoint in endpoints {
        if let Some((method, operation)) = endpoint.describe(&mut schemas) {
            let path = endpoint.documented_path();
            api.paths.add_path_operation(path, vec![method], operation);
        }
    }
    let components = api.components.get_or_insert_default();
    components.schemas.extend(schemas);
    // The document has only serialisable types.
    let mut whole = serde_json::to_value(api).unwrap_or_default();
    whole["components"]["securitySchemes"] = security_schemes();
    whole["components"]["headers"] = headers();
    if let Some(Value::Object(schemas)) = whole.pointer_mut("/components/schemas") {
        dialects::add(schemas);
    }
    OpenApiDocument::new(&finish::finish(whole, endpoints))
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

/// The parts of the document that every listener has.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "weir",
        description = "An inference gateway: chats and images of many providers, with one key and one balance of credits.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
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
