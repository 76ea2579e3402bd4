//! The JSON schemas that providers take.

use serde_json::Value;

use super::{list, text};

/// Returns why an enforced schema is outside of OpenAI's subset (`developers.openai.com/api/docs/guides/structured-outputs`).
pub(super) fn outside_openais(schema: &Value, context: &str) -> Option<String> {
    let fields = schema.as_object()?;
    for word in [
        "allOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "patternProperties",
    ] {
        if fields.contains_key(word) {
            return Some(format!(
                "In context=({context}), '{word}' is not permitted."
            ));
        }
    }
    if schema["type"] == "object" || fields.contains_key("properties") {
        if schema["additionalProperties"] != false {
            return Some(format!(
                "In context=({context}), 'additionalProperties' is required to be supplied and to be false."
            ));
        }
        let required: Vec<_> = list(&schema["required"]).iter().map(text).collect();
        let properties = schema["properties"].as_object().into_iter().flatten();
        for (name, property) in properties {
            if !required.contains(&name.as_str()) {
                return Some(format!(
                    "In context=({context}), 'required' is required to be supplied and to be an array including every key in \
                     properties. Missing '{name}'."
                ));
            }
            let found = outside_openais(property, &format!("'properties', '{name}'"));
            if found.is_some() {
                return found;
            }
        }
    }
    let mut inner = list(&schema["anyOf"]).iter().chain(schema.get("items"));
    inner.find_map(|inner| outside_openais(inner, context))
}

/// Returns why a tool's schema is refused, enforced or not: at its root, or within.
pub(super) fn no_object(schema: &Value) -> Option<String> {
    if schema["type"] != "object" {
        let kind = &schema["type"];
        return Some(format!(
            "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{}\"'.",
            kind.as_str().unwrap_or("None")
        ));
    }
    if has_choice(schema) || ["enum", "not"].iter().any(|word| !schema[word].is_null()) {
        return Some(
            "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
                .to_owned(),
        );
    }
    incomplete(schema)
}

fn incomplete(schema: &Value) -> Option<String> {
    if schema["type"] == "object" && !schema["properties"].is_object() {
        return Some("In context=(), object schema missing properties.".to_owned());
    }
    if schema["type"] == "array" && schema["items"].is_null() {
        return Some("In context=(), array schema missing items.".to_owned());
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut inner = properties
        .map(|(_, property)| property)
        .chain(schema.get("items"));
    inner.find_map(incomplete)
}

pub(super) fn has_choice(schema: &Value) -> bool {
    ["oneOf", "anyOf", "allOf"]
        .iter()
        .any(|word| schema.get(word).is_some())
}

/// Returns why an enforced schema is refused by Claude's structured outputs
/// (`platform.claude.com/docs/en/build-with-claude/structured-outputs`).
pub(super) fn outside_claudes(schema: &Value) -> Option<String> {
    const UNSUPPORTED: [&str; 11] = [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "maxItems",
        "oneOf",
        "not",
    ];
    let fields = schema.as_object()?;
    for word in UNSUPPORTED {
        if fields.contains_key(word) {
            return Some(format!(
                "For '{}' type, property '{word}' is not supported",
                text(&schema["type"])
            ));
        }
    }
    if schema["type"] == "object" && schema["additionalProperties"] != false {
        return Some(format!(
            "For 'object' type, 'additionalProperties: {}' is not supported. Please set 'additionalProperties' to false",
            schema["additionalProperties"]
        ));
    }
    let named = ["properties", "$defs"]
        .iter()
        .filter_map(|name| schema[name].as_object());
    let mut inner = named
        .flatten()
        .map(|(_, inner)| inner)
        .chain(list(&schema["anyOf"]))
        .chain(schema.get("items"));
    inner.find_map(outside_claudes)
}
