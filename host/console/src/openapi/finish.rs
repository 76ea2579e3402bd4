//! Parts that all operations share, added to the document once: security requirements, errors of authentication, of
//! bodies and of parameters, and the headers of every response. An operation itself documents only its own parts.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use weir_identity::endpoints::{Access, Endpoint};

use super::examples;
use super::links::LINKS;

/// The beginning of a reference to a schema.
const SCHEMAS: &str = "#/components/schemas/";

/// Errors of every authentication, by status.
const OF_PROOFS: [(&str, &str); 4] = [
    (
        "401",
        "`UNAUTHENTICATED`: the credential is missing or invalid.",
    ),
    (
        "403",
        "`USER_DISABLED`, `FORBIDDEN`, `DEVELOPMENT_MODE`: the caller may not do this, or not from this address.",
    ),
    (
        "429",
        "`RATE_LIMITED`, `LOCKED_OUT`: too many requests, or too many failed authentications from this address.",
    ),
    (
        "503",
        "`CACHE_UNAVAILABLE`, `STORE_UNAVAILABLE`, `IDENTITY_UNAVAILABLE`, `OVERLOADED`: try again.",
    ),
];

/// Errors of every body.
const OF_BODIES: [(&str, &str); 4] = [
    ("400", "`INVALID_REQUEST`: `param` names the invalid field."),
    (
        "408",
        "`REQUEST_TIMEOUT`: the body took too long to arrive.",
    ),
    (
        "413",
        "`PAYLOAD_TOO_LARGE`: the body exceeds the size limit.",
    ),
    (
        "415",
        "`UNSUPPORTED_MEDIA_TYPE`: the body is of another type, or has a content encoding.",
    ),
];

/// Additional errors of requests to a model.
const OF_MODELS: [(&str, &str); 7] = [
    (
        "400",
        "`INVALID_REQUEST`, `MODEL_NOT_SUPPORTED`, `VISION_NOT_SUPPORTED`, `OUTPUT_LIMIT_EXCEEDED`, `CONTEXT_LENGTH_EXCEEDED`, `UNSUPPORTED_PARAMETER`, `UPSTREAM_REJECTED`, `CONTENT_FILTERED`: the request cannot be served; outside `/v1` and `/v1beta` also `UNKNOWN_MODEL`.",
    ),
    (
        "404",
        "`UNKNOWN_MODEL`: the model does not exist; `GET /models` lists all models.",
    ),
    (
        "409",
        "`IDEMPOTENCY_KEY_REUSED`, `IDEMPOTENCY_IN_PROGRESS`, `IDEMPOTENCY_ANSWER_NOT_KEPT`: an earlier request used the key.",
    ),
    (
        "429",
        "`RATE_LIMITED`, `TOO_MANY_AT_ONCE`, `LOCKED_OUT`, `QUOTA_EXCEEDED`, `BUDGET_EXCEEDED`: too many concurrent requests, or insufficient credits.",
    ),
    (
        "502",
        "`ADAPTER_FAILED`, `FILTER_FAILED`, `UPSTREAM_ERROR`: the provider has failed.",
    ),
    (
        "503",
        "`OVERLOADED`, `UPSTREAM_BUSY`, `UPSTREAM_UNAVAILABLE`, `ADAPTER_UNAVAILABLE`, `LEDGER_BUSY`, `LEDGER_UNAVAILABLE`, `SETTLEMENT_DELAYED`, `SHUTTING_DOWN`: try again.",
    ),
    ("504", "`UPSTREAM_TIMEOUT`: the provider took too long."),
];

/// Returns the document of a listener's endpoints.
pub(super) fn finish(mut document: Value, endpoints: &[Endpoint]) -> Value {
    let schemas = document["components"]["schemas"].clone();
    let Some(Value::Object(paths)) = document.get_mut("paths") else {
        return document;
    };
    // A request for a default key needs no body.
    if let Some(keys) = paths.get_mut("/api-keys") {
        keys["post"]["requestBody"]["required"] = false.into();
    }
    let examples = serde_json::from_str(include_str!("examples.json")).unwrap_or_default();
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.is_documented()) {
        let method = endpoint.method_name();
        let path = endpoint.documented_path();
        let operation = &mut paths[&path][method.to_lowercase()];
        finish_operation(operation, method, &path, endpoint.access);
        examples::add(operation, &examples, &schemas);
    }
    link(paths);
    remove_unused(&mut document);
    document
}

/// Removes the schemas to which no operation of the listener refers.
fn remove_unused(document: &mut Value) {
    let mut used = BTreeSet::new();
    let mut texts = vec![document["paths"].to_string()];
    while let Some(text) = texts.pop() {
        for rest in text.split(SCHEMAS).skip(1) {
            let name = rest.split('"').next().unwrap_or_default();
            if used.insert(name.to_owned()) {
                texts.push(document["components"]["schemas"][name].to_string());
            }
        }
    }
    if let Some(Value::Object(schemas)) = document.pointer_mut("/components/schemas") {
        schemas.retain(|name, _| used.contains(name));
    }
}

fn finish_operation(operation: &mut Value, method: &str, path: &str, access: Access) {
    describe(operation, method, path);
    let is_open = access == Access::Open;
    if !is_open {
        operation["security"] = proofs(access);
    }
    let takes_body = operation["requestBody"].is_object();
    let is_of_model = operation["tags"] == json!(["models"]) && takes_body;
    let takes_parameters = operation
        .get("parameters")
        .and_then(Value::as_array)
        .is_some_and(|parameters| !parameters.is_empty());
    let has_cache = operation["parameters"]
        .as_array()
        .is_some_and(|parameters| parameters.iter().any(|one| one["name"] == "Cache-Control"));
    let mut errors: Vec<(&str, &str)> = Vec::new();
    if is_of_model {
        errors.extend(OF_MODELS);
    }
    if takes_body {
        errors.extend(OF_BODIES);
    } else if takes_parameters {
        errors.push(OF_BODIES[0]);
    }
    match access {
        Access::Open | Access::Signature => errors.extend([OF_PROOFS[1], OF_PROOFS[3]]),
        _ => errors.extend(OF_PROOFS),
    }
    errors.push(("500", "`INTERNAL`: an error in weir."));
    // Anthropic's status for an overload.
    if path.starts_with("/v1/messages") {
        errors.push((
            "529",
            "`OVERLOADED` and other errors of overload: try again.",
        ));
    }
    let Some(responses) = operation
        .get_mut("responses")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    for (status, description) in errors {
        let response = responses.entry(status).or_insert_with(|| json!({}));
        // The operation's own text about a status precedes the shared text.
        let said = response["description"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let code = description.split('`').nth(1).unwrap_or_default();
        if said.is_empty() {
            response["description"] = description.into();
        } else if !said.contains(code) {
            response["description"] = format!("{said} {description}").into();
        }
    }
    for (status, response) in responses.iter_mut() {
        if response["description"].as_str().is_none_or(str::is_empty) {
            response["description"] = "Success.".into();
        }
        if status.starts_with(['4', '5']) {
            write_error(response, status, path);
        }
        let headers = &mut response["headers"];
        headers["X-Request-Id"] = json!({ "$ref": "#/components/headers/RequestId" });
        if matches!(&**status, "429" | "503") {
            headers["Retry-After"] = json!({ "$ref": "#/components/headers/RetryAfter" });
        }
        if has_cache && status.starts_with('2') {
            headers["X-Weir-Cache"] = json!({ "$ref": "#/components/headers/Cache" });
            headers["Age"] = json!({ "$ref": "#/components/headers/Age" });
        }
        if !is_open && status.starts_with('2') {
            headers["RateLimit"] = json!({ "$ref": "#/components/headers/RateLimit" });
            headers["RateLimit-Policy"] = json!({ "$ref": "#/components/headers/RateLimitPolicy" });
        }
    }
}

/// Removes the method and path from the start of a handler's doc comment: the document already has both.
fn describe(operation: &mut Value, method: &str, path: &str) {
    let text = |name: &str| operation[name].as_str().unwrap_or_default();
    let (summary, description) = (text("summary"), text("description"));
    let whole = format!("{summary} {description}").replace('\n', " ");
    let rest = whole
        .split_once("`: ")
        .filter(|(before, _)| before.starts_with('`'));
    let said = rest.map_or(&*whole, |(_, rest)| rest).trim();
    let mut letters = said.chars();
    let said: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .chain(letters)
        .collect();
    let first = said.split_once(". ").map_or(&*said, |(first, _)| first);
    let summary = match first.is_empty() {
        true => format!("{method} {path}"),
        false => first.trim_end_matches('.').to_owned(),
    };
    operation["summary"] = summary.replace('`', "").into();
    operation["description"] = said.into();
}

/// Returns the security requirements of an endpoint's callers.
fn proofs(access: Access) -> Value {
    let web = json!({ "identityToken": [], "attestationToken": [] });
    match access {
        Access::User(_) => json!([{ "apiKey": [] }, { "bearerKey": [] }, web]),
        Access::Operator => json!([web, { "serviceToken": [] }]),
        Access::Service => json!([{ "serviceToken": [] }]),
        Access::Signature => json!([{ "paymentSignature": [] }]),
        _ => json!([web]),
    }
}

/// Describes an error's body: a vendor's format for the paths of its SDKs, else weir's own.
fn write_error(response: &mut Value, status: &str, path: &str) {
    let described = response["description"].as_str().unwrap_or_default();
    let code = described.split('`').nth(1).unwrap_or("INTERNAL").to_owned();
    let reference = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let content = match path {
        path if path.starts_with("/v1/messages") => {
            json!({ "schema": reference("AnthropicError") })
        }
        path if path.starts_with("/v1/models") => {
            let vendors = ["OpenAiError", "AnthropicError", "GoogleError"];
            json!({ "schema": { "anyOf": vendors.map(reference) } })
        }
        "/mcp" => json!({ "schema": { "anyOf": [reference("Error"), reference("McpError")] } }),
        path if path.starts_with("/v1beta/") => json!({ "schema": reference("GoogleError") }),
        path if path.starts_with("/v1/") => json!({ "schema": reference("OpenAiError") }),
        _ => json!({
            "schema": reference("Error"),
            "example": { "error": {
                "code": code,
                "type": kind(status),
                "message": "A message for people.",
                "param": null,
                "request_id": "req_0199",
            } },
        }),
    };
    response["content"] = json!({ "application/json": content });
}

fn kind(status: &str) -> &'static str {
    match status {
        "401" => "authentication_error",
        "403" => "permission_error",
        "404" => "not_found_error",
        "429" => "rate_limit_error",
        "503" => "overloaded_error",
        status if status.starts_with('4') => "invalid_request_error",
        _ => "api_error",
    }
}

/// Adds links between operations whose response fields are parameters of another operation.
fn link(paths: &mut Map<String, Value>) {
    let known: Vec<String> = paths
        .values()
        .filter_map(Value::as_object)
        .flat_map(Map::values)
        .filter_map(|operation| operation["operationId"].as_str().map(str::to_owned))
        .collect();
    let operations = paths.values_mut().filter_map(Value::as_object_mut);
    for operation in operations.flat_map(Map::values_mut) {
        let Some(id) = operation["operationId"].as_str().map(str::to_owned) else {
            continue;
        };
        for link in LINKS.iter().filter(|link| link.from == id) {
            if known.iter().any(|known| known == link.to) {
                let parameters = json!({ link.parameter: link.value });
                operation["responses"][link.status]["links"][link.to] =
                    json!({ "operationId": link.to, "parameters": parameters });
            }
        }
    }
}
