//! `GET /openapi.json`: the document of each listener lists the routes of this listener.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tests::api::{document, endpoints, fill, operations};
use tests::source::{files, root};
use tests::{Client, Gateway};
use weir_identity::dev_issuer::DevAudience;
use weir_identity::endpoints::Endpoint;

/// The routes that the document leaves out: pages for people, routes of the admin socket alone, and SCIM, which a standard
/// defines.
fn is_documented(path: &str) -> bool {
    let prefixes = ["/console", "/dev/", "/docs", "/local/", "/scim/"];
    path != "/" && !prefixes.iter().any(|prefix| path.starts_with(prefix))
}

/// Paths and the methods of each.
type Routes = BTreeMap<String, BTreeSet<String>>;

fn documented(document: &Value) -> Routes {
    let mut routes = Routes::new();
    for (endpoint, _) in operations(document) {
        routes
            .entry(endpoint.path)
            .or_default()
            .insert(endpoint.method);
    }
    routes
}

/// The methods that a listener takes at each of these paths, by its `Allow` header.
async fn served(client: &Client, paths: &BTreeSet<String>) -> Routes {
    let mut routes = Routes::new();
    for path in paths {
        let named = fill(path, "x");
        // No route takes this method.
        let method = Method::from_bytes(b"PURGE").expect("a method");
        let answer = client.send(method, &named, None, Bytes::new()).await;
        if answer.status == 404 {
            answer.error(404, "NOT_FOUND");
            continue;
        }
        assert_eq!(answer.status, 405, "{path}: {}", answer.text());
        let allowed = answer.headers["allow"].to_str().expect("text");
        let methods = allowed.split(',').map(|method| method.trim().to_owned());
        let methods = methods.filter(|method| method != "HEAD").collect();
        routes.insert(path.clone(), methods);
    }
    routes
}

/// The paths of all rows with an operation, for every listener.
fn paths_of_routers() -> BTreeSet<String> {
    let rows = endpoints().into_iter().filter(Endpoint::is_documented);
    rows.map(|row| row.documented_path()).collect()
}

#[test]
fn only_pages_and_standards_endpoints_have_no_operation() {
    for row in endpoints() {
        let name = row.name();
        assert_eq!(row.is_documented(), is_documented(&row.path), "{name}");
    }
}

#[tokio::test]
async fn each_listeners_document_has_its_routes_and_no_others() {
    let gateway = Gateway::builder().swarms().start().await;
    let alone = Gateway::start().await;
    let executor = gateway.executor_service(DevAudience::Executor, &[]);
    let mut paths = paths_of_routers();
    assert!(paths.len() > 70, "{paths:?}");
    let listeners = [
        ("public", gateway.stranger()),
        ("internal", gateway.internal()),
        ("executor", executor),
        ("alone", alone.stranger()),
    ];
    let mut documented_anywhere = BTreeSet::new();
    for (name, client) in &listeners {
        let documented = documented(&document(client).await);
        documented_anywhere.extend(documented.keys().cloned());
        paths.extend(documented.keys().cloned());
        let served = served(client, &paths).await;
        assert_eq!(documented, served, "at the {name} listener");
    }
    assert_eq!(documented_anywhere, paths_of_routers());
}

#[tokio::test]
async fn who_has_the_document_is_told_that_it_is_the_same() {
    let gateway = Gateway::start().await;
    let answer = gateway.stranger().get("/openapi.json").await;
    let etag = answer.headers["etag"].to_str().expect("text").to_owned();
    let again = gateway.stranger().with_header("if-none-match", &etag);
    let again = again.get("/openapi.json").await;
    assert_eq!(again.status, 304);
    assert_eq!(again.headers["etag"], etag);
    assert!(again.body.is_empty());
    let other = gateway.stranger().with_header("if-none-match", "\"0\"");
    assert_eq!(other.get("/openapi.json").await.status, 200);
}

#[tokio::test]
async fn every_operation_says_what_it_is_how_it_ends_and_by_whose_proof() {
    let gateway = Gateway::start().await;
    let document = document(&gateway.stranger()).await;
    assert_eq!(document["openapi"], "3.1.0");
    let open = ["/health", "/health/ready", "/metrics", "/openapi.json"];
    let mut ids = BTreeSet::new();
    for (endpoint, operation) in operations(&document) {
        let name = endpoint.name();
        let id = operation["operationId"].as_str().expect("an id");
        assert!(ids.insert(id), "{id} is there twice");
        for field in ["summary", "description"] {
            let text = operation[field].as_str().expect("a text");
            assert!(
                text.len() > 5 && !text.contains('`') || field == "description",
                "{name}: {field}: {text}"
            );
            assert!(!text.starts_with('`'), "{name}: {field}: {text}");
        }
        assert_eq!(
            operation["tags"].as_array().map(Vec::len),
            Some(1),
            "{name}"
        );
        let security = operation["security"].as_array();
        let is_open = open.contains(&&*endpoint.path);
        assert_eq!(security.is_none(), is_open, "{name}");
        let responses = operation["responses"].as_object().expect("responses");
        assert!(
            responses.keys().any(|status| status.starts_with('2')),
            "{name}"
        );
        for (status, response) in responses {
            let text = response["description"].as_str().expect("a text");
            assert!(!text.is_empty(), "{name}: {status}");
            assert!(
                response["headers"]["X-Request-Id"].is_object(),
                "{name}: {status}"
            );
            if status.starts_with(['4', '5']) {
                let schema = &response["content"]["application/json"]["schema"];
                assert!(schema.is_object(), "{name}: {status}");
                assert!(
                    text.starts_with('`'),
                    "{name}: {status} names its codes: {text}"
                );
            }
        }
    }
}

#[tokio::test]
async fn whatever_the_document_refers_to_is_in_it() {
    let gateway = Gateway::start().await;
    let document = document(&gateway.stranger()).await;
    let text = document.to_string();
    let references = text.split("\"$ref\":\"#").skip(1);
    let references: BTreeSet<_> = references.map(|rest| rest.split('"').next()).collect();
    assert!(references.len() > 50, "{references:?}");
    for reference in references.into_iter().flatten() {
        assert!(document.pointer(reference).is_some(), "{reference}");
    }
    let schemes = &document["components"]["securitySchemes"];
    let operations = operations(&document);
    let ids: BTreeSet<_> = operations
        .iter()
        .map(|(_, operation)| operation["operationId"].as_str().expect("an id"))
        .collect();
    let mut links = 0;
    for (endpoint, operation) in &operations {
        let name = endpoint.name();
        let proofs = operation["security"].as_array();
        for proof in proofs.into_iter().flatten() {
            for scheme in proof.as_object().expect("schemes").keys() {
                assert!(schemes[scheme].is_object(), "{name}: {scheme}");
            }
        }
        for response in operation["responses"]
            .as_object()
            .expect("responses")
            .values()
        {
            for link in response["links"]
                .as_object()
                .into_iter()
                .flat_map(|links| links.values())
            {
                let to = link["operationId"].as_str().expect("an id");
                assert!(ids.contains(to), "{name}: {to}");
                links += 1;
            }
        }
    }
    // A mistyped name would leave its link out of the document.
    let table = include_str!("../../host/console/src/openapi/links.rs");
    let (_, rows) = table.split_once("const LINKS").expect("the table");
    assert_eq!(links, rows.matches("link(").count());
}

/// The schemas of bodies that reject unknown fields say so.
#[tokio::test]
async fn bodies_that_are_checked_are_described_as_strictly() {
    let gateway = Gateway::start().await;
    let document = document(&gateway.stranger()).await;
    let schemas = &document["components"]["schemas"];
    for name in [
        "KeyRequest",
        "SwarmRequest",
        "SwarmAgent",
        "PlanChange",
        "CreditAdjustment",
    ] {
        assert_eq!(schemas[name]["additionalProperties"], false, "{name}");
    }
    for name in ["ChatCompletionRequest", "MessagesRequest", "ImageRequest"] {
        assert_eq!(schemas[name]["additionalProperties"], Value::Null, "{name}");
    }
}

/// Calls a function with each value of a document and its place.
fn walk(value: &Value, place: &str, see: &mut impl FnMut(&str, &Value)) {
    see(place, value);
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                walk(field, &format!("{place}/{name}"), see);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &format!("{place}/{index}"), see);
            }
        }
        _ => {}
    }
}

/// Words of the source in a text for users of the API.
fn leak(text: &str) -> Option<&str> {
    let words = [
        "[`",
        "](",
        "::",
        "Option<",
        "Vec<",
        "`None`",
        "`Some",
        " struct ",
        " enum ",
        "this type",
        "this module",
        "rustdoc",
        "serde",
        "handler",
        "impl ",
        "()`",
        ".rs`",
    ];
    words.into_iter().find(|word| text.contains(word))
}

#[tokio::test]
async fn the_document_is_written_for_users_of_the_api() {
    let gateway = Gateway::builder().swarms().start().await;
    for client in [gateway.stranger(), gateway.internal()] {
        let mut texts = 0;
        walk(&document(&client).await, "", &mut |place, value| {
            let is_text = ["/description", "/summary", "/title"];
            if let Some(text) = value
                .as_str()
                .filter(|_| is_text.iter().any(|end| place.ends_with(end)))
            {
                texts += 1;
                assert_eq!(leak(text), None, "{place}: {text}");
            }
        });
        assert!(texts > 100, "only {texts}");
    }
}

/// Says what is wrong with a value, in a schema of a document.
fn fault(document: &Value, schema: &Value, value: &Value, place: &str) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = document.pointer(reference.trim_start_matches('#'));
        return fault(document, schema.expect("a schema"), value, place);
    }
    for choices in ["oneOf", "anyOf"]
        .iter()
        .filter_map(|name| schema[*name].as_array())
    {
        let faults: Vec<_> = choices
            .iter()
            .map(|one| fault(document, one, value, place))
            .collect();
        if faults.iter().all(Option::is_some) {
            return Some(format!("{place}: {faults:?}"));
        }
    }
    let parts = schema["allOf"].as_array().into_iter().flatten();
    if let Some(fault) = parts
        .filter_map(|part| fault(document, part, value, place))
        .next()
    {
        return Some(fault);
    }
    let kinds = match &schema["type"] {
        Value::Null => Vec::new(),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    let is = |kind: &&str| match *kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    if !kinds.is_empty() && !kinds.iter().any(is) {
        return Some(format!("{place} is {value}, not of {kinds:?}"));
    }
    if schema["enum"]
        .as_array()
        .is_some_and(|words| !words.contains(value))
    {
        return Some(format!("{place} is {value}, not one of {}", schema["enum"]));
    }
    let number = value.as_f64();
    let is_beyond = |limit: &str, beyond: fn(f64, f64) -> bool| {
        number
            .zip(schema[limit].as_f64())
            .is_some_and(|(number, limit)| beyond(number, limit))
    };
    if is_beyond("minimum", |a, b| a < b) || is_beyond("maximum", |a, b| a > b) {
        return Some(format!("{place} is {value}, beyond its limits"));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        let fault = fault(
            document,
            &schema["items"],
            item,
            &format!("{place}[{index}]"),
        );
        if fault.is_some() {
            return fault;
        }
    }
    let fields = value.as_object().into_iter().flatten();
    for (name, field) in fields {
        let fault = match schema["properties"].get(name) {
            Some(schema) => fault(document, schema, field, &format!("{place}.{name}")),
            None if schema["additionalProperties"] == false => {
                Some(format!("{place}.{name} is unknown"))
            }
            None => None,
        };
        if fault.is_some() {
            return fault;
        }
    }
    let required = schema["required"].as_array().into_iter().flatten();
    let mut missing = required
        .filter_map(Value::as_str)
        .filter(|name| value.get(name).is_none());
    missing
        .next()
        .map(|name| format!("{place}.{name} is missing"))
}

#[tokio::test]
async fn each_operation_has_examples_that_fit_its_schemas() {
    let gateway = Gateway::builder().swarms().start().await;
    for client in [gateway.stranger(), gateway.internal()] {
        let document = document(&client).await;
        for (endpoint, operation) in operations(&document) {
            let name = endpoint.name();
            let bodies = operation["requestBody"]["content"]
                .as_object()
                .into_iter()
                .flatten();
            let responses = operation["responses"].as_object().expect("responses");
            let successes = responses
                .iter()
                .filter(|(status, _)| status.starts_with('2'));
            let content = successes.filter_map(|(_, success)| success["content"].as_object());
            for (kind, media) in bodies.chain(content.flatten()) {
                let example = media.get("example");
                if kind == "application/wasm" {
                    assert_eq!(example, None, "JSON has no bytes: {name}");
                    continue;
                }
                let example = example.unwrap_or_else(|| panic!("{name} has no example in {kind}"));
                let fault = fault(&document, &media["schema"], example, &name);
                assert_eq!(fault, None, "{kind}: {example}");
            }
        }
    }
}

/// Writes a form with an example's fields. Those whose schema is binary are files.
fn form(example: &Value, schema: &Value) -> Bytes {
    let recording = b"RIFF\x64\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\x40\0\0\0";
    let mut form = Vec::new();
    for (name, value) in example.as_object().into_iter().flatten() {
        let is_file = schema["properties"][name]["format"] == "binary";
        let (file, data) = match (is_file, &**name) {
            (true, "file") => (
                "; filename=\"weir.wav\"",
                [recording.as_slice(), &[128; 64]].concat(),
            ),
            (true, _) => ("; filename=\"weir.png\"", b"\x89PNG\r\n".to_vec()),
            (false, _) => ("", value.as_str().expect("a text").into()),
        };
        let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n");
        form.extend_from_slice(head.as_bytes());
        if name == "image" {
            form.extend_from_slice(b"Content-Type: image/png\r\n");
        }
        form.extend_from_slice(b"\r\n");
        form.extend_from_slice(&data);
        form.extend_from_slice(b"\r\n");
    }
    form.extend_from_slice(b"--b--\r\n");
    form.into()
}

/// The demo provider answers each example, and its responses fit the schemas.
#[tokio::test]
async fn the_examples_of_requests_to_models_work() {
    let gateway = Gateway::start().await;
    let document = document(&gateway.stranger()).await;
    let mut sent = 0;
    for (endpoint, operation) in operations(&document) {
        if operation["tags"][0] != "models" {
            continue;
        }
        let bodies = operation["requestBody"]["content"]
            .as_object()
            .into_iter()
            .flatten();
        for (kind, media) in bodies {
            let path = fill(&endpoint.path, "demo:generateContent");
            let schema = media["schema"]["$ref"]
                .as_str()
                .expect("a schema")
                .trim_start_matches('#');
            let schema = document.pointer(schema).expect("a schema");
            let (kind, body) = match kind.starts_with("multipart/") {
                true => (
                    "multipart/form-data; boundary=b",
                    form(&media["example"], schema),
                ),
                false => ("application/json", media["example"].to_string().into()),
            };
            let answer = gateway
                .client()
                .send(Method::POST, &path, Some(kind), body)
                .await;
            assert_eq!(answer.status, 200, "{}: {}", endpoint.name(), answer.text());
            sent += 1;
            let is_json = answer.headers["content-type"] == "application/json";
            if is_json {
                let success =
                    &operation["responses"]["200"]["content"]["application/json"]["schema"];
                assert_eq!(
                    fault(&document, success, &answer.json(), &endpoint.name()),
                    None
                );
            }
        }
    }
    assert!(sent > 15, "only {sent}");
}

/// Each field of the vendors' requests is described, and the data of streams.
#[tokio::test]
async fn the_schemas_of_dialects_have_the_fields_of_their_readers() {
    let gateway = Gateway::start().await;
    let document = document(&gateway.stranger()).await;
    let schemas = &document["components"]["schemas"];
    for (schema, fields) in [
        (
            "ChatCompletionRequest",
            ["tools", "response_format", "service_tier", "session_id"],
        ),
        ("ChatCompletionChunk", ["id", "choices", "usage", "created"]),
        (
            "ResponsesRequest",
            ["previous_response_id", "reasoning", "text", "metadata"],
        ),
        (
            "ResponsesAnswer",
            ["output", "usage", "incomplete_details", "store"],
        ),
        (
            "MessagesRequest",
            ["thinking", "system", "output_config", "container"],
        ),
        (
            "MessagesAnswer",
            ["content", "stop_reason", "usage", "stop_sequence"],
        ),
        (
            "GeminiRequest",
            [
                "contents",
                "systemInstruction",
                "generationConfig",
                "safetySettings",
            ],
        ),
        ("ImageRequest", ["size", "quality", "output_format", "user"]),
        ("ImageEditForm", ["image", "mask", "size", "n"]),
        (
            "TranscriptionForm",
            ["file", "language", "stream", "timestamp_granularities[]"],
        ),
        ("TranscriptAnswer", ["text", "duration", "words", "usage"]),
    ] {
        for field in fields {
            let text = &schemas[schema]["properties"][field]["description"];
            assert!(
                text.as_str().is_some_and(|text| text.ends_with('.')),
                "{schema}.{field}: {text}"
            );
        }
    }
    for (stream, data) in [
        ("ChatStreamEvent", "ChatCompletionChunk"),
        ("ResponsesStreamEvent", "ResponsesEvent"),
        ("MessagesStreamEvent", "MessagesEvent"),
    ] {
        let content = &schemas[stream]["properties"]["data"]["contentSchema"]["$ref"];
        assert_eq!(*content, format!("#/components/schemas/{data}"), "{stream}");
    }
    assert!(schemas["ImageRequest"]["properties"]["images"].is_null());
}

/// The endpoints that a text names in backticks, each with its method.
fn named_endpoints(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let named = text.split('`').filter_map(|words| words.split_once(' '));
    named.filter(|(method, path)| {
        ["GET", "POST", "PUT", "DELETE", "PATCH"].contains(method) && path.starts_with('/')
    })
}

#[test]
fn guides_and_comments_name_endpoints_that_exist() {
    let known: BTreeSet<_> = endpoints()
        .iter()
        .map(|row| (row.method_name().to_owned(), fill(&row.path, "{}")))
        .collect();
    let host = root().join("host");
    let mut named = 0;
    for file in files(&host, "md").into_iter().chain(files(&host, "rs")) {
        let text = fs::read_to_string(&file).expect("UTF-8");
        for (method, path) in named_endpoints(&text) {
            let path = path.split(['?', ' ']).next().unwrap_or_default();
            let endpoint = (method.to_owned(), fill(path, "{}"));
            let file = file.display();
            assert!(
                known.contains(&endpoint),
                "{file}: there is no {method} {path}"
            );
            named += 1;
        }
    }
    assert!(named > 100, "only {named}");
}
