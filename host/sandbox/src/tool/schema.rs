//! The schema of a tool's arguments: the part of JSON Schema that all model providers understand, and its check.
//!
//! A component writes the schema, and a component is hostile. Full JSON Schema would let it send the host into a loop
//! (`$ref`), into backtracking (`pattern`) or into endless branches (`anyOf` within `anyOf`). Each keyword here
//! therefore takes one step for each value, the load of a component refuses any other keyword, and no library for all
//! of JSON Schema is needed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::printable::printable;

/// Maximum size of a schema in bytes: each call of a model carries it.
const MAX_SCHEMA_BYTES: usize = 16 << 10;

/// Maximum nesting of schemas.
const MAX_DEPTH: usize = 16;

/// Annotation keywords, which constrain nothing.
const ANNOTATIONS: [&str; 8] = [
    "$schema",
    "title",
    "description",
    "default",
    "examples",
    "format",
    "deprecated",
    "$comment",
];

/// A schema that has been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSchema {
    /// The schema as the component wrote it.
    json: Value,
    root: SchemaNode,
}

/// The constraints on a value. Every keyword applies to values of one type, and values of other types pass, as in
/// JSON Schema.
#[derive(Debug, Clone, Default, PartialEq)]
struct SchemaNode {
    types: Vec<Type>,
    one_of_values: Option<Vec<Value>>,
    properties: BTreeMap<String, SchemaNode>,
    required: Vec<String>,
    others: OtherProperties,
    items: Option<Box<SchemaNode>>,
    length: LengthBounds,
    count: LengthBounds,
    minimum: Option<f64>,
    maximum: Option<f64>,
}

/// Properties that a schema does not name.
#[derive(Debug, Clone, Default, PartialEq)]
enum OtherProperties {
    #[default]
    Any,
    None,
    Each(Box<SchemaNode>),
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct LengthBounds {
    least: Option<u64>,
    most: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl ToolSchema {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// Returns the fault as a predicate.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(format!("has more than {MAX_SCHEMA_BYTES} bytes"));
        }
        let json: Value =
            serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
        let root = SchemaNode::read(&json, "", 0)?;
        if root.types != [Type::Object] {
            return Err("must have the \"type\" \"object\", since arguments are one".to_owned());
        }
        Ok(Self { json, root })
    }

    /// Returns the schema as the component wrote it.
    pub fn as_json(&self) -> &Value {
        &self.json
    }

    /// Checks arguments against the schema.
    ///
    /// # Errors
    ///
    /// Describes the first mismatch, in words that a model can act on.
    pub fn check(&self, arguments: &Value) -> Result<(), String> {
        self.root.check(arguments, "")
    }
}

impl SchemaNode {
    fn read(schema: &Value, path: &str, depth: usize) -> Result<Self, String> {
        let wrong = |keyword: &str, must: &str| {
            let at = place(path);
            Err(format!("has a {keyword:?} at {at} that must be {must}"))
        };
        if depth > MAX_DEPTH {
            return Err(format!("nests deeper than {MAX_DEPTH} schemas"));
        }
        let Value::Object(keywords) = schema else {
            return Err(format!("has no object at {}", place(path)));
        };
        let mut node = Self::default();
        for (keyword, value) in keywords {
            match &**keyword {
                "type" => match read_types(value) {
                    Some(types) => node.types = types,
                    None => return wrong(keyword, "a type's name, or a list of them"),
                },
                "enum" => match value {
                    Value::Array(values) => node.one_of_values = Some(values.clone()),
                    _ => return wrong(keyword, "a list"),
                },
                "const" => node.one_of_values = Some(vec![value.clone()]),
                "properties" => match value {
                    Value::Object(properties) => {
                        for (name, schema) in properties {
                            let property = Self::read(schema, &below(path, name), depth + 1)?;
                            node.properties.insert(name.clone(), property);
                        }
                    }
                    _ => return wrong(keyword, "an object"),
                },
                "required" => match serde_json::from_value(value.clone()) {
                    Ok(required) => node.required = required,
                    Err(_) => return wrong(keyword, "a list of names"),
                },
                "additionalProperties" => {
                    node.others = match value {
                        Value::Bool(true) => OtherProperties::Any,
                        Value::Bool(false) => OtherProperties::None,
                        schema => OtherProperties::Each(Box::new(Self::read(
                            schema,
                            &below(path, "*"),
                            depth + 1,
                        )?)),
                    }
                }
                "items" => {
                    let items = Self::read(value, &format!("{path}[]"), depth + 1)?;
                    node.items = Some(Box::new(items));
                }
                "minLength" | "maxLength" | "minItems" | "maxItems" => {
                    let Some(bound) = value.as_u64() else {
                        return wrong(keyword, "a whole number");
                    };
                    let bounds = match keyword.ends_with("Length") {
                        true => &mut node.length,
                        false => &mut node.count,
                    };
                    match keyword.starts_with("min") {
                        true => bounds.least = Some(bound),
                        false => bounds.most = Some(bound),
                    }
                }
                "minimum" | "maximum" => {
                    let Some(bound) = value.as_f64() else {
                        return wrong(keyword, "a number");
                    };
                    match &**keyword {
                        "minimum" => node.minimum = Some(bound),
                        _ => node.maximum = Some(bound),
                    }
                }
                annotation if ANNOTATIONS.contains(&annotation) => {}
                other => {
                    return Err(format!(
                        "has the keyword \"{}\" at {}, which is not among those that weir checks",
                        printable(other, 64),
                        place(path)
                    ));
                }
            }
        }
        Ok(node)
    }

    fn check(&self, value: &Value, path: &str) -> Result<(), String> {
        let at = place(path);
        if !self.types.is_empty() && !self.types.iter().any(|ty| ty.is_of(value)) {
            let names: Vec<_> = self.types.iter().map(Type::name).collect();
            return Err(format!("{at} must be {}", names.join(" or ")));
        }
        if let Some(values) = &self.one_of_values
            && !values.contains(value)
        {
            let values: Vec<_> = values.iter().map(Value::to_string).collect();
            return Err(format!("{at} must be one of {}", values.join(", ")));
        }
        match value {
            Value::Object(properties) => self.check_object(properties, path),
            Value::Array(items) => {
                self.count.check(items.len() as u64, &at, "items")?;
                let Some(schema) = &self.items else {
                    return Ok(());
                };
                let mut items = items.iter().enumerate();
                items.try_for_each(|(index, item)| schema.check(item, &format!("{path}[{index}]")))
            }
            Value::String(text) => {
                let characters = text.chars().count() as u64;
                self.length.check(characters, &at, "characters")
            }
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                match (self.minimum, self.maximum) {
                    (Some(least), _) if number < least => {
                        Err(format!("{at} must be at least {least}"))
                    }
                    (_, Some(most)) if number > most => Err(format!("{at} must be at most {most}")),
                    _ => Ok(()),
                }
            }
            Value::Null | Value::Bool(_) => Ok(()),
        }
    }

    fn check_object(&self, properties: &Map<String, Value>, path: &str) -> Result<(), String> {
        for name in &self.required {
            if !properties.contains_key(name) {
                return Err(format!("{} is missing", place(&below(path, name))));
            }
        }
        for (name, value) in properties {
            let path = below(path, name);
            match (self.properties.get(name), &self.others) {
                (Some(schema), _) => schema.check(value, &path)?,
                (None, OtherProperties::Each(schema)) => schema.check(value, &path)?,
                (None, OtherProperties::Any) => {}
                (None, OtherProperties::None) => {
                    let known: Vec<_> = self.properties.keys().map(String::as_str).collect();
                    let known = known.join(", ");
                    return Err(format!("{} is unknown; there is {known}", place(&path)));
                }
            }
        }
        Ok(())
    }
}

impl LengthBounds {
    fn check(&self, number: u64, at: &str, what: &str) -> Result<(), String> {
        match (self.least, self.most) {
            (Some(least), _) if number < least => {
                Err(format!("{at} must have at least {least} {what}"))
            }
            (_, Some(most)) if number > most => {
                Err(format!("{at} must have at most {most} {what}"))
            }
            _ => Ok(()),
        }
    }
}

impl Type {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "string" => Self::String,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "true or false",
            Self::Integer => "a whole number",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }

    fn is_of(self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Boolean => value.is_boolean(),
            Self::Integer => {
                value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
            }
            Self::Number => value.is_number(),
            Self::String => value.is_string(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

fn read_types(value: &Value) -> Option<Vec<Type>> {
    match value {
        Value::String(name) => Some(vec![Type::parse(name)?]),
        Value::Array(names) if !names.is_empty() => names
            .iter()
            .map(|name| Type::parse(name.as_str()?))
            .collect(),
        _ => None,
    }
}

fn below(path: &str, name: &str) -> String {
    let name = printable(name, 64);
    match path {
        "" => name,
        path => format!("{path}.{name}"),
    }
}

/// Formats a path for a sentence.
fn place(path: &str) -> String {
    match path {
        "" => "the whole".to_owned(),
        path => format!("`{path}`"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(json: &Value) -> ToolSchema {
        ToolSchema::parse(&json.to_string()).expect("it is sound")
    }

    #[test]
    fn arguments_are_held_to_every_keyword_and_told_by_path() {
        let schema = schema(&json!({
            "type": "object",
            "properties": {
                "url": { "type": "string", "minLength": 3, "maxLength": 5, "description": "Where" },
                "method": { "enum": ["GET", "PUT"] },
                "count": { "type": "integer", "minimum": 1, "maximum": 9 },
                "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 1 },
                "headers": { "type": "object", "additionalProperties": { "type": "string" } },
                "body": { "type": ["object", "null"] },
            },
            "required": ["url"],
            "additionalProperties": false,
        }));
        for sound in [
            json!({ "url": "abc" }),
            json!({ "url": "äöüäö", "method": "PUT", "count": 9.0, "tags": ["x"], "headers": {}, "body": null }),
            json!({ "url": "abc", "headers": { "a": "b" }, "body": { "any": [1] } }),
        ] {
            assert_eq!(schema.check(&sound), Ok(()), "{sound}");
        }
        for (wrong, told) in [
            (json!([]), "the whole must be an object"),
            (json!({}), "`url` is missing"),
            (json!({ "url": 1 }), "`url` must be a string"),
            (
                json!({ "url": "ab" }),
                "`url` must have at least 3 characters",
            ),
            (
                json!({ "url": "abcdef" }),
                "`url` must have at most 5 characters",
            ),
            (
                json!({ "url": "abc", "method": "get" }),
                "`method` must be one of \"GET\", \"PUT\"",
            ),
            (
                json!({ "url": "abc", "count": 1.5 }),
                "`count` must be a whole number",
            ),
            (
                json!({ "url": "abc", "count": 0 }),
                "`count` must be at least 1",
            ),
            (
                json!({ "url": "abc", "tags": [1] }),
                "`tags[0]` must be a string",
            ),
            (
                json!({ "url": "abc", "tags": ["a", "b"] }),
                "`tags` must have at most 1 items",
            ),
            (
                json!({ "url": "abc", "headers": { "a": 1 } }),
                "`headers.a` must be a string",
            ),
            (
                json!({ "url": "abc", "body": [] }),
                "`body` must be an object or null",
            ),
            (
                json!({ "url": "abc", "uri": "abc" }),
                "`uri` is unknown; there is body, count, headers, method, tags, url",
            ),
        ] {
            assert_eq!(schema.check(&wrong), Err(told.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn schemas_that_could_keep_the_host_busy_or_make_no_sense_are_refused() {
        let nested = (0..20).fold(json!({}), |inner, _| json!({ "items": inner }));
        for (text, told) in [
            ("{".to_owned(), "is no JSON"),
            (json!([]).to_string(), "no object"),
            (json!({}).to_string(), "\"object\""),
            (json!({ "type": "string" }).to_string(), "\"object\""),
            (
                json!({ "type": "object", "$ref": "#" }).to_string(),
                "\"$ref\"",
            ),
            (
                json!({ "type": "object", "properties": { "a": { "pattern": "(a+)+$" } } })
                    .to_string(),
                "\"pattern\" at `a`",
            ),
            (
                json!({ "type": "object", "anyOf": [] }).to_string(),
                "\"anyOf\"",
            ),
            (json!({ "type": "thing" }).to_string(), "a type's name"),
            (
                json!({ "type": "object", "required": "url" }).to_string(),
                "a list of names",
            ),
            (
                json!({ "type": "object", "properties": { "a": nested } }).to_string(),
                "nests deeper",
            ),
            (
                format!("{{\"title\":\"{}\"}}", "x".repeat(16 << 10)),
                "more than",
            ),
        ] {
            let error = ToolSchema::parse(&text).expect_err("it is refused");
            assert!(error.contains(told), "{told}: {error}");
        }
    }
}
