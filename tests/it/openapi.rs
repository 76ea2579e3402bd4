//! `GET /openapi.json`: the document of each listener equals the listener's routes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tests::{Client, Gateway};
use weir::identity::dev_issuer::DevAudience;

/// Paths outside of the API: pages for people, and paths of the admin socket alone.
const PAGES: [&str; 2] = ["/dev/", "/local/"];

/// Paths and the methods of each.
type Routes = BTreeMap<String, BTreeSet<String>>;

async fn document(client: &Client) -> Value {
    let answer = client.get("/openapi.json").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "application/json");
    answer.json()
}

fn documented(document: &Value) -> Routes {
    let paths = document["paths"].as_object().expect("paths");
    let methods = |item: &Value| {
        let item = item.as_object().expect("operations");
        item.keys().map(|method| method.to_uppercase()).collect()
    };
    paths
        .iter()
        .map(|(path, item)| (path.clone(), methods(item)))
        .collect()
}

fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = document["paths"].as_object().expect("paths");
    paths.iter().flat_map(|(path, item)| {
        let item = item.as_object().expect("operations");
        item.iter()
            .map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

/// Returns the methods that a listener itself reports for each of these paths.
async fn served(client: &Client, paths: &BTreeSet<String>) -> Routes {
    let mut routes = Routes::new();
    for path in paths {
        let named = path.split('/').map(|part| match part.starts_with('{') {
            true => "x",
            false => part,
        });
        let named = named.collect::<Vec<_>>().join("/");
        // No route takes this method.
        let answer = client.send(Method::PATCH, &named, None, Bytes::new()).await;
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

/// Returns all paths of the router's page, on any listener.
fn paths_of_router() -> BTreeSet<String> {
    let router = include_str!("../../host/weir/src/router.rs");
    let routes = router.split(".route(").skip(1);
    let paths = routes.map(|route| route.split('"').nth(1).expect("a path"));
    paths
        .filter(|path| !PAGES.iter().any(|page| path.starts_with(page)))
        .map(|path| path.replace("{*id}", "{id}"))
        .collect()
}

#[tokio::test]
async fn each_listeners_document_has_its_routes_and_no_others() {
    let gateway = Gateway::builder().swarms().start().await;
    let alone = Gateway::start().await;
    let executor = gateway.executor_service(DevAudience::Executor, &[]);
    let mut paths = paths_of_router();
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
    assert_eq!(documented_anywhere, paths_of_router());
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
    for (name, operation) in operations(&document) {
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
        let path = name.split(' ').nth(1).expect("a path");
        let security = operation["security"].as_array();
        assert_eq!(security.is_none(), open.contains(&path), "{name}");
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
    let ids: BTreeSet<_> = operations(&document)
        .map(|(_, operation)| operation["operationId"].as_str().expect("an id"))
        .collect();
    let mut links = 0;
    for (name, operation) in operations(&document) {
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
    // All links have a target: a mistyped name would be missing.
    let table = include_str!("../../host/weir/src/openapi/links.rs");
    let (_, rows) = table.split_once("const LINKS").expect("the table");
    assert_eq!(links, rows.matches("link(").count());
}

/// The schemas of bodies say that unknown fields are refused.
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
