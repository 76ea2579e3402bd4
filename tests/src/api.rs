//! The endpoints of weir, for tests that cover all of them: from the source of the routers, and from the OpenAPI document.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::client::Client;
use crate::source::{files, root};

/// The methods that a router's page names, as functions of axum.
const METHODS: [&str; 6] = ["get", "post", "put", "delete", "patch", "any"];

/// An endpoint by its method, in capitals, and its path, with parameters in braces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// In capitals.
    pub method: String,
    /// With parameters in braces, as in `/swarms/{execution_id}`.
    pub path: String,
}

impl Endpoint {
    /// Its name, as in `GET /swarms/{execution_id}`.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Its path with each parameter replaced.
    pub fn path_with(&self, parameter: &str) -> String {
        fill(&self.path, parameter)
    }
}

/// A path with each of its parameters replaced.
pub fn fill(path: &str, parameter: &str) -> String {
    let parts = path.split('/').map(|part| match part.starts_with('{') {
        true => parameter,
        false => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// All endpoints of all listeners, read from the source of the routers.
///
/// The source lists every route, including console pages and routes of the admin socket, which the OpenAPI document lacks.
pub fn endpoints() -> BTreeSet<Endpoint> {
    let mut found = BTreeSet::new();
    for file in files(&root().join("host"), "rs") {
        let text = fs::read_to_string(&file).expect("UTF-8");
        for route in text.split(".route(").skip(1) {
            // Other types have methods of this name, too.
            if route.trim_start().starts_with("\"/") {
                found.extend(endpoints_of(route));
            }
        }
    }
    found
}

/// The endpoints of one `.route("/path", get(…).post(…))`; the text starts after its opening parenthesis.
fn endpoints_of(route: &str) -> Vec<Endpoint> {
    let path = route.split('"').nth(1).expect("a path");
    let mut depth = 1;
    let end = route.find(|character| {
        depth += match character {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    let route = &route[..end.expect("a route ends")];
    // Words of the path are not methods.
    let handlers = route.rsplit('"').next().unwrap_or_default();
    let words = handlers.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let words: BTreeSet<_> = words.collect();
    let methods = METHODS.into_iter().filter(|method| words.contains(method));
    methods
        .map(|method| Endpoint {
            method: method.to_uppercase(),
            path: path.to_owned(),
        })
        .collect()
}

/// The OpenAPI document of the listener that a client calls.
///
/// # Panics
///
/// If the listener has none.
pub async fn document(client: &Client) -> Value {
    let answer = client.get("/openapi.json").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "application/json");
    answer.json()
}

/// The operations of an OpenAPI document, with their descriptions.
pub fn operations(document: &Value) -> Vec<(Endpoint, &Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let mut found = Vec::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("operations") {
            let endpoint = Endpoint {
                method: method.to_uppercase(),
                path: path.clone(),
            };
            found.push((endpoint, operation));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_has_an_endpoint_for_each_of_its_methods() {
        let route = "\n \"/get/{id}\",\n get(a::show).put(a::replace),\n)\n.route(\"/x\", post(a))";
        let names: Vec<_> = endpoints_of(route).iter().map(Endpoint::name).collect();
        assert_eq!(names, ["GET /get/{id}", "PUT /get/{id}"]);
    }

    #[test]
    fn parameters_are_replaced() {
        assert_eq!(fill("/a/{b}/c/{*d}", "x"), "/a/x/c/x");
        assert_eq!(fill("/", "x"), "/");
    }
}
