//! The schemas of all dialects, for the gateway's OpenAPI document.

use serde_json::{Map, Value};

use crate::schema::{Schemas, nullable, without};
use crate::{
    anthropic_messages, gemini_generate, openai_chat, openai_completions, openai_responses,
};

/// Returns the schemas of requests, responses and events by name.
pub fn schemas() -> Map<String, Value> {
    let mut schemas = Schemas::default();
    for describe in [
        openai_chat::describe,
        openai_responses::describe,
        openai_completions::describe,
        anthropic_messages::describe,
        gemini_generate::describe,
    ] {
        describe(&mut schemas);
    }
    let mut schemas = schemas.into_components();
    add_count(&mut schemas);
    schemas
}

/// Adds the request that counts tokens: it has the reader of messages.
fn add_count(schemas: &mut Map<String, Value>) {
    let count = &schemas["MessagesRequest"];
    let mut count = without(count, &["max_tokens"], &[]);
    let limit = count["properties"]["max_tokens"].take();
    count["properties"]["max_tokens"] = nullable(limit);
    count["description"] = "A request in Anthropic's Messages to count tokens.".into();
    schemas.insert("CountTokensRequest".to_owned(), count);
}
