//! The schemas of all dialects, for the gateway's OpenAPI document.

use serde_json::{Map, Value, json};

use crate::schema::{Schemas, nullable};
use crate::{
    anthropic_messages, gemini_generate, openai_chat, openai_completions, openai_embeddings,
    openai_images, openai_moderation, openai_responses, openai_speech, openai_transcription,
    rerank,
};

/// Returns the schemas of requests, responses and events by name.
pub fn schemas() -> Map<String, Value> {
    let mut schemas = Schemas::default();
    for describe in [
        openai_chat::describe,
        openai_responses::describe,
        openai_completions::describe,
        openai_images::describe,
        openai_embeddings::describe,
        openai_moderation::describe,
        openai_speech::describe,
        openai_transcription::describe,
        rerank::describe,
        anthropic_messages::describe,
        gemini_generate::describe,
    ] {
        describe(&mut schemas);
    }
    let mut schemas = schemas.into_components();
    add_variants(&mut schemas);
    schemas
}

/// Adds the variants of requests that have a reader in common.
fn add_variants(schemas: &mut Map<String, Value>) {
    let count = &schemas["MessagesRequest"];
    let mut count = without(count, &["max_tokens"], &[]);
    let limit = count["properties"]["max_tokens"].take();
    count["properties"]["max_tokens"] = nullable(limit);
    let count = described(count, "A request in Anthropic's Messages to count tokens.");
    let edit = &schemas["ImageEditRequest"];
    let made = without(edit, &["images"], &["images", "mask"]);
    let mut made = described(
        made,
        "A request in OpenAI's Images. Fields that weir does not know go on to the provider.",
    );
    made["required"] = json!(["model", "prompt"]);
    let mut form = as_form(&without(edit, &["images"], &["images"]));
    form["properties"]["image"] =
        file("The source image. A list of images has the name `image[]`.");
    form["properties"]["mask"] =
        file("An image whose transparent parts mark what the model may change.");
    form["required"] = json!(["model", "prompt", "image"]);
    let form = described(
        form,
        "A request that edits an image, as a form. Fields that weir does not know go on to the provider.",
    );
    let mut transcription = as_form(&schemas["TranscriptionForm"]);
    let list = "timestamp_granularities";
    if let Some(fields) = transcription["properties"].as_object_mut()
        && let Some(timings) = fields.remove(list)
    {
        fields.insert(format!("{list}[]"), timings);
    }
    transcription["properties"]["file"] = file("The recording: flac, mp3, mp4, ogg, wav or webm.");
    transcription["required"] = json!(["model", "file"]);
    let translation = without(&transcription, &[], &["language", "stream"]);
    let translation = described(
        translation,
        "A request for the words of a recording in English, as a form. Fields that weir does not know go on to the provider.",
    );
    for (name, schema) in [
        ("CountTokensRequest", count),
        ("ImageRequest", made),
        ("ImageEditForm", form),
        ("TranscriptionForm", transcription),
        ("TranslationForm", translation),
    ] {
        schemas.insert(name.to_owned(), schema);
    }
}

/// Returns an object's schema without some requirements, and without some fields.
fn without(schema: &Value, required: &[&str], fields: &[&str]) -> Value {
    let mut schema = schema.clone();
    if let Some(names) = schema["required"].as_array_mut() {
        names.retain(|name| !required.iter().any(|one| name == one));
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.retain(|name, _| !fields.contains(&name.as_str()));
    }
    schema
}

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

fn file(description: &str) -> Value {
    json!({ "type": "string", "format": "binary", "description": description })
}

/// Returns an object's schema for a form, which has no null.
fn as_form(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let fields = schema["properties"].as_object_mut();
    for field in fields.into_iter().flat_map(Map::values_mut) {
        if let Some([kind, _]) = field["type"].as_array().map(Vec::as_slice) {
            field["type"] = kind.clone();
        }
        if let Some(words) = field.get_mut("enum").and_then(Value::as_array_mut) {
            words.retain(|word| !word.is_null());
        }
    }
    schema
}
