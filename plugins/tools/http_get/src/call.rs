//! `GET` of a URL from the model. The policy of its slot lists the permitted hosts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use weir_sdk::tool::{
    self, CallContext, Description, Failure, Fetch, Method, Request, Tool, arguments,
};

#[derive(Debug)]
pub struct HttpGet;

#[derive(Deserialize)]
struct Arguments {
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    credential: Option<String>,
}

impl Tool for HttpGet {
    fn describe() -> Description {
        let schema = json!({
            "type": "object",
            "properties": {
                "url": { "type": "string", "minLength": 1, "maxLength": 8192, "description": "The absolute URL." },
                "headers": {
                    "type": "object",
                    "additionalProperties": { "type": "string" },
                    "description": "Request headers, such as accept.",
                },
                "credential": { "type": "string", "description": "The name of a stored credential to send along, if you were told of one." },
            },
            "required": ["url"],
            "additionalProperties": false,
        });
        Description {
            name: "http_get".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: "Fetches what is at a URL, and returns its status, headers and text."
                .to_owned(),
            input_schema: schema.to_string(),
        }
    }

    fn call(text: &str, _: &CallContext, fetch: &mut Fetch<'_>) -> Result<String, Failure> {
        let input: Arguments = arguments(text)?;
        tool::told(fetch(Request {
            method: Method::Get,
            url: input.url,
            headers: tool::headers(input.headers),
            body: None,
            credential: input.credential,
        }))
    }
}
