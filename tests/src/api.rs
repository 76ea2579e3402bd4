//! The endpoints of weir, for tests that cover all of them: the rows of the routers, and the OpenAPI document.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_identity::endpoints::Endpoint;

use crate::client::Client;

/// The method, in capitals, and the path of an operation in the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationName {
    /// In capitals.
    pub method: String,
    /// With parameters in braces, as in `/swarms/{execution_id}`.
    pub path: String,
}

impl OperationName {
    /// Its name, as in `GET /swarms/{execution_id}`.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
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

/// The endpoints of all listeners, each once, by their names.
///
/// # Panics
///
/// If two listeners have rows of one endpoint that differ.
pub fn endpoints() -> Vec<Endpoint> {
    let mut found = BTreeMap::<_, Endpoint>::new();
    for row in weir::router::endpoints() {
        let (access, tenancy) = (row.access, row.tenancy);
        let known = found.entry(row.name()).or_insert(row);
        assert_eq!((known.access, known.tenancy), (access, tenancy));
    }
    found.into_values().collect()
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
pub fn operations(document: &Value) -> Vec<(OperationName, &Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let mut found = Vec::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("operations") {
            let endpoint = OperationName {
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
    fn parameters_are_replaced() {
        assert_eq!(fill("/a/{b}/c/{*d}", "x"), "/a/x/c/x");
        assert_eq!(fill("/", "x"), "/");
    }
}
