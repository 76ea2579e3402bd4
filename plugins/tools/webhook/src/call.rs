//! `POST` to one of the webhooks of the agent's owner. The host signs the request and adds its id.

use serde::Deserialize;
use serde_json::{Value, json};
use weir_sdk::tool::{
    self, CallContext, Description, Failure, Fetch, Method, Request, Tool, arguments,
};

#[derive(Debug)]
pub struct Webhook;

#[derive(Deserialize)]
struct Arguments {
    url: Option<String>,
    body: Value,
}

impl Tool for Webhook {
    fn describe() -> Description {
        let schema = json!({
            "type": "object",
            "properties": {
                "url": {
                    "type": "string",
                    "description": "One of your webhook URLs, unchanged. Leave it out if you have only one.",
                },
                "body": { "type": ["object", "array"], "description": "The JSON body for the webhook." },
            },
            "required": ["body"],
            "additionalProperties": false,
        });
        Description {
            name: "webhook".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: "Sends JSON to one of your webhooks.".to_owned(),
            input_schema: schema.to_string(),
        }
    }

    fn call(text: &str, context: &CallContext, fetch: &mut Fetch<'_>) -> Result<String, Failure> {
        let input: Arguments = arguments(text)?;
        let own = &context.webhook_urls;
        let url = match (input.url, &own[..]) {
            (_, []) => return Err(Failure::Failed("You have no webhooks.".to_owned())),
            (None, [only]) => only.clone(),
            (Some(url), own) if own.contains(&url) => url,
            _ => {
                let why = format!("`url` must be one of {}", own.join(", "));
                return Err(Failure::InvalidArguments(why));
            }
        };
        let mut headers = Vec::new();
        let body = tool::body(&input.body, &mut headers);
        tool::told(fetch(Request {
            method: Method::Post,
            url,
            headers,
            body: Some(body),
            credential: None,
        }))
    }
}
