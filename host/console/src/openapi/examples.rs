//! An example of each operation's request and response.
//!
//! `examples.json` has those that say most, by operation; a response that is a text there is that of another operation.
//! The other responses are made from their schemas.

use serde_json::{Map, Value, json};

/// The greatest depth of an example that is made from a schema.
const MAX_DEPTH: usize = 8;

/// Adds the examples to an operation.
pub(super) fn add(operation: &mut Value, known: &Value, schemas: &Value) {
    let id = operation["operationId"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let own = &known[&id];
    let bodies = operation.pointer_mut("/requestBody/content");
    for (kind, media) in bodies.and_then(Value::as_object_mut).into_iter().flatten() {
        // An example is JSON, which has no bytes.
        if kind == "application/wasm" {
            continue;
        }
        let name = match kind.starts_with("multipart/") {
            true => "form",
            false => "request",
        };
        add_to(media, &own[name], schemas);
    }
    let response = match own["response"].as_str() {
        Some(other) if known[other].is_object() => &known[other]["response"],
        _ => &own["response"],
    };
    let responses = operation["responses"].as_object_mut();
    let successes = responses.into_iter().flatten();
    for (_, success) in successes.filter(|(status, _)| status.starts_with('2')) {
        let content = success.get_mut("content").and_then(Value::as_object_mut);
        for (kind, media) in content.into_iter().flatten() {
            let is_json = kind == "application/json";
            add_to(
                media,
                if is_json { response } else { &Value::Null },
                schemas,
            );
        }
    }
}

/// Adds an example to a body, unless it or its schema has one.
fn add_to(media: &mut Value, own: &Value, schemas: &Value) {
    if media.get("example").is_none() {
        let example = match own {
            Value::Null => example(&media["schema"], "", schemas, 0),
            own => own.clone(),
        };
        media["example"] = example;
    }
}

/// Makes an example of a field with this name.
fn example(schema: &Value, name: &str, schemas: &Value, depth: usize) -> Value {
    let place = schema["$ref"].as_str().unwrap_or_default();
    let schema = match place.rsplit('/').next() {
        Some(name) if !name.is_empty() => &schemas[name],
        _ => schema,
    };
    for given in [
        &schema["example"],
        &schema["examples"][0],
        &schema["default"],
        &schema["enum"][0],
    ] {
        if !given.is_null() {
            return given.clone();
        }
    }
    for choices in [&schema["oneOf"], &schema["anyOf"]] {
        let mut choices = choices.as_array().into_iter().flatten();
        if let Some(choice) = choices.find(|choice| choice["type"] != "null") {
            return example(choice, name, schemas, depth);
        }
    }
    if let Some(parts) = schema["allOf"].as_array() {
        let mut whole = Map::new();
        for part in parts {
            if let Value::Object(fields) = example(part, name, schemas, depth) {
                whole.extend(fields);
            }
        }
        return Value::Object(whole);
    }
    let kind = schema["type"].as_str().or(schema["type"][0].as_str());
    match kind {
        Some("object") => {
            let mut object = Map::new();
            let fields = schema["properties"].as_object();
            for (name, field) in fields.into_iter().flatten().filter(|_| depth < MAX_DEPTH) {
                object.insert(name.clone(), example(field, name, schemas, depth + 1));
            }
            Value::Object(object)
        }
        Some("array") if depth < MAX_DEPTH => {
            json!([example(&schema["items"], name, schemas, depth + 1)])
        }
        Some("array") => json!([]),
        Some("boolean") => true.into(),
        Some("integer") => match &schema["minimum"] {
            Value::Null => 1.into(),
            least => least.clone(),
        },
        Some("number") => match schema["maximum"].as_f64() {
            Some(most) if most < 2.0 => json!(most / 2.0),
            _ => 12.5.into(),
        },
        Some("string") => text(schema, name).into(),
        _ => Value::Null,
    }
}

/// Makes an example of a text.
fn text(schema: &Value, name: &str) -> String {
    let is_time = name.ends_with("_at") || name == "at" || name.ends_with("_since");
    match (schema["format"].as_str(), name) {
        (Some("date"), _) => "2026-11-24".to_owned(),
        (Some("date-time"), _) => "2026-11-24T12:00:00Z".to_owned(),
        (Some("binary"), _) => "The bytes of a file.".to_owned(),
        _ if is_time => "2026-11-24T12:00:00Z".to_owned(),
        (_, "model") => "demo".to_owned(),
        (_, "email") => "ada@example.org".to_owned(),
        (_, "url" | "origin") => "https://example.org".to_owned(),
        (_, "digest") => {
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_owned()
        }
        (_, "day" | "from" | "to") => "2026-11-24".to_owned(),
        (_, "period" | "month") => "2026-11".to_owned(),
        (_, "id") => "0199".to_owned(),
        (_, name) if name.ends_with("_id") => format!("{}_0199", name.trim_end_matches("_id")),
        (_, "data") => "{}".to_owned(),
        (_, "") => "A text.".to_owned(),
        (_, name) => name.replace('_', " "),
    }
}
