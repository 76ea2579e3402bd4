//! Schemas of Google's own form, a subset of OpenAPI's, as JSON Schema.
//!
//! The two forms differ in the spelling of types (`STRING`), in `nullable`, and in whole numbers, which protocol
//! buffers' JSON writes as texts, too. `propertyOrdering` becomes the order of the properties, which is how other
//! providers read an order.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::json::{
    BoundedList, FieldFault, MAX_PARTS, Raw, check_is_object, count_item, object_of, reread,
};

/// Names with several words, as in JSON Schema, with the other spelling of protocol buffers' JSON.
const NAMES: [(&str, &str); 12] = [
    ("additional_properties", "additionalProperties"),
    ("any_of", "anyOf"),
    ("defs", "$defs"),
    ("max_items", "maxItems"),
    ("max_length", "maxLength"),
    ("max_properties", "maxProperties"),
    ("min_items", "minItems"),
    ("min_length", "minLength"),
    ("min_properties", "minProperties"),
    ("prefix_items", "prefixItems"),
    ("property_ordering", "propertyOrdering"),
    ("ref", "$ref"),
];

/// The fields of an object, in the client's order.
struct SchemaFields<'de>(Vec<(String, Raw<'de>)>);

impl<'de> Deserialize<'de> for SchemaFields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> serde::de::Visitor<'de> for FieldsVisitor {
            type Value = SchemaFields<'de>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    count_item()?;
                    fields.push(field);
                }
                Ok(SchemaFields(fields))
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// Translates a schema. [`Raw`] bounds its depth.
pub(super) fn json_schema(raw: Raw<'_>) -> Result<String, FieldFault> {
    check_is_object(raw.0, "")?;
    let mut fields = Vec::new();
    let (mut is_nullable, mut order) = (false, Vec::new());
    for (name, value) in reread::<SchemaFields<'_>>(raw)?.0 {
        let known = NAMES.iter().find(|(other, _)| *other == name);
        let name = known.map_or(name, |(_, own)| (*own).to_owned());
        let within = |fault: FieldFault| fault.within(&name);
        let json = match &*name {
            _ if value.0 == "null" => continue,
            "type" => match kind(value) {
                Some(kind) => kind,
                None => continue,
            },
            "nullable" => {
                is_nullable = value.0 == "true";
                continue;
            }
            // Google's mark of an enumeration, which `enum` shows already.
            "format" if value.0 == "\"enum\"" => continue,
            "propertyOrdering" => {
                order = reread::<BoundedList<String, MAX_PARTS>>(value)
                    .map_err(within)?
                    .0;
                continue;
            }
            "items" | "additionalProperties" if value.0.starts_with('{') => {
                json_schema(value).map_err(within)?
            }
            "properties" | "$defs" => {
                let mut properties = Vec::new();
                for (key, schema) in reread::<SchemaFields<'_>>(value).map_err(within)?.0 {
                    let schema = json_schema(schema);
                    let schema = schema.map_err(|fault| within(fault.within(&key)))?;
                    properties.push((key, schema));
                }
                object_of(properties)
            }
            "anyOf" | "prefixItems" => schemas(value).map_err(within)?,
            "maxItems" | "maxLength" | "maxProperties" | "minItems" | "minLength"
            | "minProperties" => number(value),
            _ => value.0.to_owned(),
        };
        fields.push((name, json));
    }
    if !order.is_empty() {
        in_order(&mut fields, &order);
    }
    if is_nullable {
        allow_null(&mut fields);
    }
    Ok(object_of(fields))
}

/// Returns the name of a type, or of several; `None` for no type.
fn kind(value: Raw<'_>) -> Option<String> {
    let kind = value.0.to_ascii_lowercase();
    (kind != "\"type_unspecified\"").then_some(kind)
}

/// Returns a whole number that may be written as a text.
fn number(value: Raw<'_>) -> String {
    let digits = value.0.trim_matches('"');
    match digits.parse::<u64>() {
        Ok(_) => digits.to_owned(),
        Err(_) => value.0.to_owned(),
    }
}

fn schemas(list: Raw<'_>) -> Result<String, FieldFault> {
    let items = reread::<BoundedList<Raw<'_>, MAX_PARTS>>(list)?.0;
    let mut json = String::from("[");
    for (index, schema) in items.into_iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        let schema = json_schema(schema).map_err(|fault| fault.at(index))?;
        let _ = write!(json, "{separator}{schema}");
    }
    json.push(']');
    Ok(json)
}

/// Sorts the properties; those without a place stay behind the others.
fn in_order(fields: &mut [(String, String)], order: &[String]) {
    let Some((_, properties)) = fields.iter_mut().find(|(name, _)| name == "properties") else {
        return;
    };
    let Ok(SchemaFields(mut known)) = serde_json::from_str::<SchemaFields<'_>>(properties) else {
        return;
    };
    let place = |name: &str| order.iter().position(|known| known == name);
    known.sort_by_key(|(name, _)| place(name).unwrap_or(order.len()));
    let owned = |(name, schema): (String, Raw<'_>)| (name, schema.0.to_owned());
    let sorted = object_of(known.into_iter().map(owned).collect());
    *properties = sorted;
}

/// Adds null to the values of a schema.
fn allow_null(fields: &mut Vec<(String, String)>) {
    for (name, json) in fields.iter_mut() {
        let null = match &**name {
            "type" if json.starts_with('"') => {
                *json = format!("[{json},\"null\"]");
                continue;
            }
            "enum" => "null",
            "anyOf" => "{\"type\":\"null\"}",
            _ => continue,
        };
        if let Some(items) = json.strip_suffix(']') {
            let separator = if items.trim_end().ends_with('[') {
                ""
            } else {
                ","
            };
            *json = format!("{items}{separator}{null}]");
        }
    }
    let is_free = fields
        .iter()
        .all(|(name, _)| name != "type" && name != "anyOf");
    if is_free && let Some(at) = fields.iter().position(|(name, _)| name == "$ref") {
        let (_, target) = fields.remove(at);
        let list = format!("[{{\"$ref\":{target}}},{{\"type\":\"null\"}}]");
        fields.push(("anyOf".into(), list));
    }
}
