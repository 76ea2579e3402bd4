//! Requests to an integration's API: below its base URL, with its operator's credential.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use weir_sdk::tool::{
    self, CallContext, Description, Failure, Fetch, Method, Request, Tool, arguments,
};

#[derive(Debug)]
pub struct ApiCall;

#[derive(Deserialize)]
struct Arguments {
    integration: String,
    path: String,
    method: Option<String>,
    #[serde(default)]
    query: BTreeMap<String, Value>,
    body: Option<Value>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl Tool for ApiCall {
    fn describe() -> Description {
        let schema = json!({
            "type": "object",
            "properties": {
                "integration": { "type": "string", "description": "The id of one of your integrations." },
                "path": { "type": "string", "minLength": 1, "description": "The path below its base URL, e.g. /v1/items." },
                "method": { "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"], "description": "GET if left out." },
                "query": {
                    "type": "object",
                    "additionalProperties": { "type": ["string", "number", "boolean"] },
                    "description": "Query parameters.",
                },
                "body": {
                    "type": ["object", "array", "string"],
                    "description": "An object or array is sent as JSON, a string as it is.",
                },
                "headers": { "type": "object", "additionalProperties": { "type": "string" }, "description": "Request headers." },
            },
            "required": ["integration", "path"],
            "additionalProperties": false,
        });
        Description {
            name: "api_call".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: "Calls the API of one of your integrations, with its credential, and returns the answer's status, headers and text.".to_owned(),
            input_schema: schema.to_string(),
        }
    }

    fn call(text: &str, context: &CallContext, fetch: &mut Fetch<'_>) -> Result<String, Failure> {
        let input: Arguments = arguments(text)?;
        let mut integrations = context.integrations.iter();
        let Some(integration) = integrations.find(|own| own.id == input.integration) else {
            let own: Vec<_> = context.integrations.iter().map(|own| &*own.id).collect();
            let why = match &own[..] {
                [] => "you have no integrations".to_owned(),
                own => format!("`integration` must be one of {}", own.join(", ")),
            };
            return Err(Failure::InvalidArguments(why));
        };
        let mut headers = tool::headers(input.headers);
        let body = input.body.map(|body| tool::body(&body, &mut headers));
        tool::told(fetch(Request {
            method: method(input.method.as_deref())?,
            url: url(&integration.base_url, &input.path, &input.query)?,
            headers,
            body,
            credential: integration.credential.clone(),
        }))
    }
}

fn method(name: Option<&str>) -> Result<Method, Failure> {
    Ok(match name.unwrap_or("GET") {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        other => {
            let why = format!("`method` cannot be {other}");
            return Err(Failure::InvalidArguments(why));
        }
    })
}

/// Appends the path and never joins it: the host checks its destination.
fn url(base: &str, path: &str, query: &BTreeMap<String, Value>) -> Result<String, Failure> {
    if !path.starts_with('/') || path.contains('#') {
        let why = "`path` must begin with a slash and have no fragment";
        return Err(Failure::InvalidArguments(why.to_owned()));
    }
    let mut url = format!("{base}{path}");
    for (name, value) in query {
        url.push(if url.contains('?') { '&' } else { '?' });
        percent_encode(name, &mut url);
        url.push('=');
        match value {
            Value::String(text) => percent_encode(text, &mut url),
            other => percent_encode(&other.to_string(), &mut url),
        }
    }
    Ok(url)
}

fn percent_encode(text: &str, encoded: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
}
