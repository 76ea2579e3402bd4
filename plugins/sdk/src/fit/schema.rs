//! JSON schemas within the subset of a provider. The order of fields stays: models write them in this order.

use std::fmt;

use memchr::memmem;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{Rules, StrictSchemas};
use crate::chat::{ChatRequest, ResponseFormat, ToolKind};
use crate::wire::Ignored;

/// The rules for the schemas of tools, enforced or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolSchemas {
    /// All of JSON Schema.
    Any,
    /// The root is of type `object`, and no choice.
    Objects,
    /// The same; also, objects have `properties`, and arrays `items`.
    ObjectsWithProperties,
}

/// Keywords of a choice, which a root must not have.
const CHOICES: [&str; 3] = ["anyOf", "oneOf", "allOf"];

/// Other keywords that a root must not have.
const NOT_AT_ROOT: [&str; 2] = ["enum", "not"];

/// The keywords of closed schemas (anthropic 2.14.0, `lib/_parse/_transform.py`).
const CLOSED_KEYWORDS: [&str; 17] = [
    "type",
    "enum",
    "const",
    "default",
    "title",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "allOf",
    "$ref",
    "$defs",
    "definitions",
    "format",
    "minItems",
];

/// The formats of texts in closed schemas.
const CLOSED_FORMATS: [&str; 10] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "uri",
    "ipv4",
    "ipv6",
    "uuid",
];

/// Keywords that an enforced schema of OpenAI does not have.
const NOT_STRICT: [&str; 9] = [
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
];

/// Keywords with a schema, with a list of schemas, and with schemas by name.
const SCHEMA: [&str; 2] = ["items", "additionalProperties"];
const SCHEMAS: [&str; 3] = ["anyOf", "oneOf", "allOf"];
const NAMED_SCHEMAS: [&str; 3] = ["properties", "$defs", "definitions"];

/// JSON whose objects keep the order of their fields.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    Object(Vec<(String, Node)>),
    List(Vec<Node>),
    Scalar(Value),
}

/// Fits the schemas of tools and of the response. A schema that is no JSON stays, for the adapter to refuse.
pub(super) fn fit(chat: &mut ChatRequest, rules: &Rules, ignored: &mut Ignored) {
    for tool in &mut chat.tools {
        let ToolKind::Function(function) = &mut tool.kind else {
            continue;
        };
        let schema = &mut function.input_schema;
        if rules.tool_schemas != ToolSchemas::Any && !is_plain_object(schema, rules.tool_schemas) {
            rewrite(schema, |node| root_of_tool(node, rules.tool_schemas));
        }
        enforce(schema, &mut function.strict, rules, "tools.strict", ignored);
    }
    if let ResponseFormat::JsonSchema(format) = &mut chat.response_format {
        // This provider enforces every schema.
        let mut strict = match rules.strict_schemas {
            StrictSchemas::Closed => Some(true),
            _ => format.strict,
        };
        let name = "response_format.json_schema.strict";
        enforce(&mut format.schema, &mut strict, rules, name, ignored);
        if rules.strict_schemas != StrictSchemas::Closed {
            format.strict = strict;
        }
    }
}

/// Fits an enforced schema, or lets it go unenforced.
fn enforce(
    schema: &mut String,
    strict: &mut Option<bool>,
    rules: &Rules,
    name: &str,
    ignored: &mut Ignored,
) {
    if *strict != Some(true) {
        return;
    }
    match rules.strict_schemas {
        StrictSchemas::Any => {}
        StrictSchemas::AllRequired => {
            let node = serde_json::from_str::<Node>(schema);
            if node.is_ok_and(|node| !is_strict(&node, true)) {
                *strict = Some(false);
                ignored.add(name);
            }
        }
        StrictSchemas::Closed => rewrite(schema, |node| {
            close(node, ignored);
        }),
    }
}

fn rewrite(schema: &mut String, change: impl FnOnce(&mut Node)) {
    if let Ok(mut node) = serde_json::from_str::<Node>(schema) {
        change(&mut node);
        *schema = serde_json::to_string(&node).unwrap_or_else(|_| std::mem::take(schema));
    }
}

/// Whether a look at the text shows that the root needs no change: agents send long schemas with each request.
fn is_plain_object(schema: &str, rules: ToolSchemas) -> bool {
    let json = schema.trim().as_bytes();
    let says_object = [r#"{"type":"object""#, r#"{"type": "object""#]
        .iter()
        .any(|begin| json.starts_with(begin.as_bytes()))
        || [r#""type":"object"}"#, r#""type": "object"}"#]
            .iter()
            .any(|end| json.ends_with(end.as_bytes()));
    let count = |word: &str| memmem::find_iter(json, word.as_bytes()).count();
    let has_choice = CHOICES
        .iter()
        .chain(&NOT_AT_ROOT)
        .any(|word| count(&format!("\"{word}\"")) > 0);
    let has_parts = rules == ToolSchemas::Objects
        || count("\"properties\"") >= count("\"object\"")
            && count("\"items\"") >= count("\"array\"");
    says_object && !has_choice && has_parts
}

/// Makes the root an object without choices: it has the properties of all alternatives, and requires those that each
/// alternative requires.
fn root_of_tool(node: &mut Node, rules: ToolSchemas) {
    let Node::Object(root) = node else { return };
    let mut description = None;
    for word in CHOICES {
        let Some(Node::List(alternatives)) = take(root, word) else {
            continue;
        };
        let text = serde_json::to_string(&Node::List(alternatives.clone())).unwrap_or_default();
        description = Some(format!("{word}: {text}"));
        merge(root, alternatives, word == "allOf");
    }
    for word in NOT_AT_ROOT {
        take(root, word);
    }
    if let Some(choice) = description {
        describe(root, &choice);
    }
    set(root, "type", Node::text("object"), true);
    if rules == ToolSchemas::ObjectsWithProperties {
        fill(node);
    }
}

/// Adds the properties of alternatives to an object, and what they require.
fn merge(root: &mut Vec<(String, Node)>, alternatives: Vec<Node>, all: bool) {
    let mut required: Option<Vec<Node>> = None;
    let mut properties = match take(root, "properties") {
        Some(Node::Object(properties)) => properties,
        _ => Vec::new(),
    };
    for alternative in alternatives {
        let Node::Object(mut fields) = alternative else {
            continue;
        };
        if let Some(Node::Object(own)) = take(&mut fields, "properties") {
            for (name, schema) in own {
                if !properties.iter().any(|(known, _)| *known == name) {
                    properties.push((name, schema));
                }
            }
        }
        let own = match take(&mut fields, "required") {
            Some(Node::List(own)) => own,
            _ => Vec::new(),
        };
        required = Some(match required {
            None => own,
            Some(mut before) if all => {
                before.extend(own);
                before
            }
            Some(mut before) => {
                before.retain(|name| own.contains(name));
                before
            }
        });
    }
    root.push(("properties".to_owned(), Node::Object(properties)));
    let mut names = match take(root, "required") {
        Some(Node::List(names)) => names,
        _ => Vec::new(),
    };
    for name in required.unwrap_or_default() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if !names.is_empty() {
        root.push(("required".to_owned(), Node::List(names)));
    }
}

/// Gives objects their properties, and arrays their items.
fn fill(node: &mut Node) {
    let Node::Object(fields) = node else { return };
    if is_of_type(fields, "object") {
        set(fields, "properties", Node::Object(Vec::new()), false);
    }
    if is_of_type(fields, "array") {
        set(fields, "items", Node::Object(Vec::new()), false);
    }
    each_schema(fields, &mut fill);
}

/// Closes each object, and moves keywords that the provider does not have into the description, as its SDK does.
fn close(node: &mut Node, ignored: &mut Ignored) {
    let Node::Object(fields) = node else { return };
    if let Some(Node::List(alternatives)) = take(fields, "oneOf") {
        set(fields, "anyOf", Node::List(alternatives), false);
    }
    let mut moved = Vec::new();
    let before = std::mem::take(fields);
    for (name, value) in before {
        let is_known = match (&*name, &value) {
            ("format", Node::Scalar(Value::String(format))) => {
                CLOSED_FORMATS.contains(&format.as_str())
            }
            ("minItems", Node::Scalar(Value::Number(least))) => {
                least.as_u64().is_some_and(|least| least <= 1)
            }
            // The properties of an object may have any names: they are in `properties`.
            (name, _) => CLOSED_KEYWORDS.contains(&name),
        };
        match is_known {
            true => fields.push((name, value)),
            false => moved.push((name, value)),
        }
    }
    let words: Vec<_> = moved
        .iter()
        .filter(|(name, _)| !name.starts_with('$'))
        .map(|(name, value)| {
            let value = serde_json::to_string(value).unwrap_or_default();
            format!("{name}: {value}")
        })
        .collect();
    if !words.is_empty() {
        describe(fields, &format!("{{{}}}", words.join(", ")));
    }
    if is_of_type(fields, "object") || fields.iter().any(|(name, _)| name == "properties") {
        let open = take(fields, "additionalProperties");
        let is_open = open.is_some_and(|open| open != Node::Scalar(Value::Bool(false)));
        ignored.add_if(is_open, "additionalProperties");
        fields.push((
            "additionalProperties".to_owned(),
            Node::Scalar(Value::Bool(false)),
        ));
    }
    each_schema(fields, &mut |schema| close(schema, ignored));
}

/// Whether a schema is in the subset that OpenAI enforces.
fn is_strict(node: &Node, is_root: bool) -> bool {
    let Node::Object(fields) = node else {
        return true;
    };
    let has = |word: &str| fields.iter().any(|(name, _)| name == word);
    if NOT_STRICT.iter().any(|word| has(word)) || is_root && has("anyOf") {
        return false;
    }
    if is_of_type(fields, "object") || has("properties") {
        let is_closed =
            get(fields, "additionalProperties") == Some(&Node::Scalar(Value::Bool(false)));
        let required = match get(fields, "required") {
            Some(Node::List(required)) => &required[..],
            _ => &[],
        };
        let requires_all = match get(fields, "properties") {
            Some(Node::Object(properties)) => properties
                .iter()
                .all(|(name, _)| required.contains(&Node::text(name))),
            _ => false,
        };
        if !is_closed || !requires_all {
            return false;
        }
    } else if is_root {
        return false;
    }
    fields.iter().all(|(name, value)| match value {
        Node::List(schemas) if SCHEMAS.contains(&&**name) => {
            schemas.iter().all(|schema| is_strict(schema, false))
        }
        Node::Object(named) if NAMED_SCHEMAS.contains(&&**name) => {
            named.iter().all(|(_, schema)| is_strict(schema, false))
        }
        schema if SCHEMA.contains(&&**name) => is_strict(schema, false),
        _ => true,
    })
}

/// Visits the schemas directly within one.
fn each_schema(fields: &mut [(String, Node)], visit: &mut dyn FnMut(&mut Node)) {
    for (name, value) in fields {
        match value {
            Node::List(schemas) if SCHEMAS.contains(&&**name) => {
                schemas.iter_mut().for_each(&mut *visit);
            }
            Node::Object(named) if NAMED_SCHEMAS.contains(&&**name) => {
                named.iter_mut().for_each(|(_, schema)| visit(schema));
            }
            schema if SCHEMA.contains(&&**name) => visit(schema),
            _ => {}
        }
    }
}

fn is_of_type(fields: &[(String, Node)], word: &str) -> bool {
    match get(fields, "type") {
        Some(Node::List(types)) => types.contains(&Node::text(word)),
        Some(only) => *only == Node::text(word),
        None => false,
    }
}

fn get<'n>(fields: &'n [(String, Node)], name: &str) -> Option<&'n Node> {
    let mut fields = fields.iter();
    fields
        .find(|(known, _)| known == name)
        .map(|(_, value)| value)
}

fn take(fields: &mut Vec<(String, Node)>, name: &str) -> Option<Node> {
    let place = fields.iter().position(|(known, _)| known == name)?;
    Some(fields.remove(place).1)
}

/// Sets a field: an absent one, or with `replaces` any.
fn set(fields: &mut Vec<(String, Node)>, name: &str, value: Node, replaces: bool) {
    match fields.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) if replaces => *known = value,
        Some(_) => {}
        None => fields.push((name.to_owned(), value)),
    }
}

/// Adds words to the description.
fn describe(fields: &mut Vec<(String, Node)>, words: &str) {
    let described = match take(fields, "description") {
        Some(Node::Scalar(Value::String(before))) => format!("{before}\n\n{words}"),
        _ => words.to_owned(),
    };
    fields.push(("description".to_owned(), Node::text(&described)));
}

impl Node {
    fn text(text: &str) -> Self {
        Self::Scalar(Value::String(text.to_owned()))
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
            Self::List(nodes) => {
                let mut list = serializer.serialize_seq(Some(nodes.len()))?;
                for node in nodes {
                    list.serialize_element(node)?;
                }
                list.end()
            }
            Self::Scalar(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NodeVisitor;

        impl<'de> Visitor<'de> for NodeVisitor {
            type Value = Node;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Node::Object(fields))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
                let mut nodes = Vec::new();
                while let Some(node) = list.next_element()? {
                    nodes.push(node);
                }
                Ok(Node::List(nodes))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Node, E> {
                Ok(Node::text(value))
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Scalar(Value::Null))
            }
        }

        deserializer.deserialize_any(NodeVisitor)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn changed(schema: &str, change: impl FnOnce(&mut Node)) -> String {
        let mut schema = schema.to_owned();
        rewrite(&mut schema, change);
        schema
    }

    #[test]
    fn roots_become_objects() {
        let rules = ToolSchemas::ObjectsWithProperties;
        for (before, after) in [
            ("{}", r#"{"type":"object","properties":{}}"#),
            (
                r#"{"properties":{"b":{"type":"array"},"a":{"type":"string"}}}"#,
                r#"{"properties":{"b":{"type":"array","items":{}},"a":{"type":"string"}},"type":"object"}"#,
            ),
            (
                r#"{"type":"object","anyOf":[{"properties":{"a":{}},"required":["a","c"]},{"properties":{"b":{}},"required":["c"]}]}"#,
                r#"{"type":"object","properties":{"a":{},"b":{}},"required":["c"],"description":"anyOf: [{\"properties\":{\"a\":{}},\"required\":[\"a\",\"c\"]},{\"properties\":{\"b\":{}},\"required\":[\"c\"]}]"}"#,
            ),
        ] {
            assert!(!is_plain_object(before, rules), "{before}");
            assert_eq!(changed(before, |node| root_of_tool(node, rules)), after);
            assert_eq!(changed(after, |node| root_of_tool(node, rules)), after);
        }
        for plain in [
            r#"{"type":"object","properties":{"a":{"type":"array","items":{}}}}"#,
            r#"{ "properties": {"a": {"type": "string"}}, "type": "object"}"#,
        ] {
            assert!(is_plain_object(plain, rules), "{plain}");
        }
    }

    #[test]
    fn closed_schemas_say_the_rest_in_words() {
        let mut ignored = Ignored::default();
        let open = r#"{"$schema":"x","type":"object","properties":{"n":{"type":"integer","minimum":1,"description":"A number."},"o":{"type":"object","additionalProperties":true}}}"#;
        assert_eq!(
            changed(open, |node| close(node, &mut ignored)),
            r#"{"type":"object","properties":{"n":{"type":"integer","description":"A number.\n\n{minimum: 1}"},"o":{"type":"object","additionalProperties":false}},"additionalProperties":false}"#
        );
        assert_eq!(ignored.into_names(), ["additionalProperties"]);
    }

    #[test]
    fn strict_schemas_require_all() {
        for (schema, is_in_subset) in [
            (
                r#"{"type":"object","properties":{},"additionalProperties":false}"#,
                true,
            ),
            (
                r#"{"type":"object","properties":{"a":{"type":"object","properties":{"b":{}},"required":["b"],"additionalProperties":false}},"required":["a"],"additionalProperties":false}"#,
                true,
            ),
            (
                r#"{"type":"object","properties":{"a":{}},"additionalProperties":false}"#,
                false,
            ),
            (
                r#"{"type":"object","properties":{"a":{}},"required":["a"]}"#,
                false,
            ),
            (
                r#"{"type":"object","properties":{"a":{"allOf":[]}},"required":["a"],"additionalProperties":false}"#,
                false,
            ),
            (r#"{"type":"array"}"#, false),
        ] {
            let node = serde_json::from_str(schema).unwrap();
            assert_eq!(is_strict(&node, true), is_in_subset, "{schema}");
        }
    }

    #[test]
    fn the_order_and_the_numbers_stay() {
        let schema = r#"{"z":1.0,"a":-1,"m":[true,null,"x",18446744073709551615]}"#;
        let node: Node = serde_json::from_str(schema).unwrap();
        assert_eq!(serde_json::to_string(&node).unwrap(), schema);
    }
}
