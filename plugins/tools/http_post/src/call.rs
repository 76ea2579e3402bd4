//! `POST` to a URL from the model. The policy of its slot lists the permitted hosts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use weir_sdk::tool::{
    self, CallContext, Description, Failure, Fetch, Method, Request, Tool, arguments,
};

#[derive(Debug)]
pub struct HttpPost;

#[derive(Deserialize)]
struct Arguments {
    url: String,
    body: Option<Value>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    credential: Option<String>,
}

impl Tool for HttpPost {
    fn describe() -> Description {
        let schema = json!({
            "type": "object",
            "properties": {
                "url": { "type": "string", "minLength": 1, "maxLength": 8192, "description": "The absolute URL." },
                "body": {
                    "type": ["object", "array", "string"],
                    "description": "An object or array is sent as JSON, a string as it is.",
                },
                "headers": {
                    "type": "object",
                    "additionalProperties": { "type": "string" },
                    "description": "Request headers, such as content-type where it is neither JSON nor plain text.",
                },
                "credential": { "type": "string", "description": "The name of a stored credential to send along, if you were told of one." },
            },
            "required": ["url"],
            "additionalProperties": false,
        });
        Description {
            name: "http_post".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description:
                "Posts a body to a URL, and returns the answer's status, headers and text."
                    .to_owned(),
            input_schema: schema.to_string(),
        }
    }

    fn call(text: &str, _: &CallContext, fetch: &mut Fetch<'_>) -> Result<String, Failure> {
        let input: Arguments = arguments(text)?;
        let mut headers = tool::headers(input.headers);
        let body = input.body.map(|body| tool::body(&body, &mut headers));
        tool::told(fetch(Request {
            method: Method::Post,
            url: input.url,
            headers,
            body,
            credential: input.credential,
        }))
    }
}
