//! Acme's customers, by their number.

use serde::Deserialize;
use weir_sdk::tool::{
    self, CallContext, Description, Failure, Fetch, Method, Request, Tool, arguments,
};

/// The tool.
pub struct Lookup;

#[derive(Deserialize)]
struct Arguments {
    number: u64,
}

impl Tool for Lookup {
    fn describe() -> Description {
        Description {
            name: "acme".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: "Looks a customer up by number.".to_owned(),
            input_schema: r#"{"type":"object","properties":{"number":{"type":"integer","minimum":1}},"required":["number"]}"#.to_owned(),
        }
    }

    fn call(text: &str, context: &CallContext, fetch: &mut Fetch<'_>) -> Result<String, Failure> {
        let Arguments { number } = arguments(text)?;
        tool::told(fetch(Request {
            method: Method::Get,
            url: format!("https://crm.example.com/v2/customers/{number}"),
            headers: Vec::new(),
            body: None,
            // By its name, which the operator gave it: the host adds it.
            credential: context.credentials.iter().find(|name| *name == "acme").cloned(),
        }))
    }
}
