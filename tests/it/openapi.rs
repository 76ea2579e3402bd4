//! `GET /openapi.json`: the document of each listener lists the routes of this listener.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tests::api::{document, endpoints, fill, operations};
use tests::source::{files, root};
use tests::{Client, Gateway};
use weir::identity::dev_issuer::DevAudience;

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

/// The documented paths of all routers, for every listener.
fn paths_of_routers() -> BTreeSet<String> {
    let paths = endpoints().into_iter().map(|endpoint| endpoint.path);
    paths
        .filter(|path| is_documented(path))
        .map(|path| path.replace("{*id}", "{id}"))
        .collect()
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
    let routed = paths_of_routers();
    let undocumented: Vec<_> = routed.difference(&documented_anywhere).collect();
    assert!(
        undocumented.is_empty(),
        "these routes have no operation in host/weir/src/openapi/mod.rs: {undocumented:?}"
    );
    let unrouted: Vec<_> = documented_anywhere.difference(&routed).collect();
    assert!(
        unrouted.is_empty(),
        "these operations have no route: {unrouted:?}"
    );
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
    let table = include_str!("../../host/weir/src/openapi/links.rs");
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
        .map(|endpoint| (endpoint.method.clone(), endpoint.path_with("{}")))
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
