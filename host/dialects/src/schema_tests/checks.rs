//! Checks of schemas. The tests of each crate with schemas include this file.
//!
//! [`check`] validates a value; the dialects' tests pass all their responses to it. [`readers_keep_promises`] changes one
//! field of a good request after the other.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use weir_errors::ApiError;

static SCHEMAS: LazyLock<Map<String, Value>> = LazyLock::new(crate::schemas);

/// Checks that a response fits the schema with this name. Each of its fields must be in the schema.
///
/// # Panics
///
/// If it does not.
fn check(name: &str, value: &Value) {
    if let Err(fault) = fits(value, &SCHEMAS[name], "") {
        panic!("{name}: {fault}: {value}");
    }
}

/// Reads a response, and checks it.
///
/// # Panics
///
/// If it does not fit the schema with this name.
pub(crate) fn checked(name: &str, body: &[u8]) -> Value {
    let value = serde_json::from_slice(body).unwrap();
    check(name, &value);
    value
}

/// Checks the data of a stream's events.
///
/// # Panics
///
/// If one does not fit the schema with this name.
pub(crate) fn check_events(name: &str, stream: &[u8]) {
    let stream = std::str::from_utf8(stream).unwrap();
    let data = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    for data in data.filter(|data| *data != "[DONE]") {
        check(name, &serde_json::from_str(data).unwrap());
    }
}

fn resolved(schema: &Value) -> &Value {
    match schema["$ref"].as_str() {
        Some(place) => &SCHEMAS[place.rsplit('/').next().unwrap()],
        None => schema,
    }
}

/// Says what is wrong with a value.
fn fits(value: &Value, schema: &Value, path: &str) -> Result<(), String> {
    let schema = resolved(schema);
    for choice in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let faults: Vec<_> = choices.iter().map(|one| fits(value, one, path)).collect();
            let fitting = faults.iter().filter(|fault| fault.is_ok()).count();
            if fitting == 0 || choice == "oneOf" && fitting > 1 {
                return Err(format!("{path}: {fitting} choices fit: {faults:?}"));
            }
        }
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        Value::String(kind) => vec![kind.as_str()],
        _ => Vec::new(),
    };
    let is_kind = |one: &&str| *one == kind || *one == "number" && kind == "integer";
    if !kinds.is_empty() && !kinds.iter().any(is_kind) {
        return Err(format!("{path} is {kind}, not one of {kinds:?}"));
    }
    if schema["enum"]
        .as_array()
        .is_some_and(|words| !words.contains(value))
    {
        return Err(format!("{path} is {value}, not one of {}", schema["enum"]));
    }
    if let Some(items) = value.as_array() {
        for (index, item) in items.iter().enumerate() {
            fits(item, &schema["items"], &format!("{path}[{index}]"))?;
        }
    }
    let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) else {
        return Ok(());
    };
    for (name, field) in fields {
        let path = format!("{path}.{name}");
        match known.get(name) {
            Some(schema) => fits(field, schema, &path)?,
            // A block or a part of the provider's own kind.
            None if schema["additionalProperties"] == true => {}
            None => return Err(format!("{path} is not in the schema")),
        }
    }
    let required = schema["required"].as_array().into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{path}.{name} is missing"));
        }
    }
    Ok(())
}

/// Reads a body, and returns the field of its error.
pub(crate) type Reader = fn(&Value) -> Result<(), Option<String>>;

pub(crate) fn param<T>(read: Result<T, ApiError>) -> Result<(), Option<String>> {
    read.map(drop)
        .map_err(|error| error.param().map(str::to_owned))
}

pub(crate) fn bytes(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

/// A value that no field of a type takes.
fn of_wrong_type(schema: &Value) -> Option<Value> {
    let wrong = [json!(true), json!("x"), json!({ "a": 1 }), json!([[true]])];
    wrong
        .into_iter()
        .find(|value| fits(value, schema, "").is_err())
}

/// The values that a schema forbids, and those at its limits, which it allows.
fn values_of(schema: &Value) -> (Vec<Value>, Vec<Value>) {
    let schema = resolved(schema);
    if let Some(choices) = schema["anyOf"].as_array() {
        // A value outside of one choice may be in another.
        let allowed = choices.iter().flat_map(|choice| values_of(choice).1);
        return (
            of_wrong_type(schema).into_iter().collect(),
            allowed.collect(),
        );
    }
    let (mut wrong, mut right) = (Vec::new(), Vec::new());
    wrong.extend(of_wrong_type(schema));
    let words = schema["enum"].as_array().cloned().unwrap_or_default();
    if !words.is_empty() {
        let is_text = words[0].is_string();
        wrong.push(if is_text { json!("another") } else { json!(7) });
        right.extend(words.into_iter().filter(|word| !word.is_null()));
        return (wrong, right);
    }
    let text = |chars: &Value| chars.as_u64().map(|count| "x".repeat(count as usize));
    if let Some(shortest) = text(&schema["minLength"]) {
        wrong.push(json!(shortest[1..]));
        right.push(json!(shortest));
    }
    if let Some(longest) = text(&schema["maxLength"]) {
        wrong.push(json!(format!("{longest}x")));
        right.push(json!(longest));
    }
    if schema["pattern"].is_string() {
        wrong.push(json!("a b"));
        right.push(json!("a"));
    }
    for (limit, beyond) in [("minimum", -1.0), ("maximum", 1.0)] {
        if let Some(at) = schema[limit].as_f64() {
            let beyond = at + beyond;
            wrong.push(match schema["type"].to_string().contains("integer") {
                true => json!(beyond as i64),
                false => json!(beyond),
            });
            right.push(schema[limit].clone());
        }
    }
    if let (Some(count), item) = (schema["maxItems"].as_u64(), &schema["items"]) {
        // Only short lists: many have items that do not repeat.
        if let (1..=16, Some(item)) = (count, values_of(item).1.first()) {
            wrong.push(vec![item.clone(); count as usize + 1].into());
            right.push(vec![item.clone(); count as usize].into());
        }
    }
    if schema["minItems"].as_u64() == Some(1) {
        wrong.push(json!([]));
    }
    (wrong, right)
}

/// A body, its reader, and the paths with the right values that the reader refuses for another reason.
struct Attempt<'a> {
    read: Reader,
    body: &'a Value,
    tried: BTreeSet<String>,
}

impl Attempt<'_> {
    /// Tries the rules of an object and of those within.
    fn try_object(&mut self, object: &Value, schema: &Value, path: &str, pointer: &str) {
        let schema = resolved(schema);
        if let Some(choices) = schema["anyOf"].as_array() {
            let choice = choices
                .iter()
                .find(|choice| fits(object, choice, "").is_ok());
            if let Some(choice) = choice {
                self.try_object(object, choice, path, pointer);
            }
            return;
        }
        if let Some(items) = object.as_array() {
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                self.try_object(item, &schema["items"], &path, &format!("{pointer}/{index}"));
            }
        }
        let Some(properties) = schema["properties"]
            .as_object()
            .filter(|_| object.is_object())
        else {
            return;
        };
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, field) in properties {
            let dot = if path.is_empty() { "" } else { "." };
            let inner = format!("{path}{dot}{name}");
            // Without a place in the object, a field may belong to another type of object, and has no effect.
            let is_read = path.is_empty() || object.get(name).is_some();
            self.try_field(field, (name, &inner), pointer, is_read);
            if required.contains(&json!(name)) {
                let outcome = self.with(pointer, name, None);
                let is_named = matches!(&outcome, Err(Some(param)) if names(param, &inner));
                assert!(is_named, "{inner} must not be absent, but: {outcome:?}");
            }
            self.try_object(&object[name], field, &inner, &format!("{pointer}/{name}"));
        }
    }

    fn try_field(
        &mut self,
        field: &Value,
        (name, path): (&str, &str),
        pointer: &str,
        is_read: bool,
    ) {
        let (wrong, right) = match is_read {
            true => values_of(field),
            false => (of_wrong_type(field).into_iter().collect(), Vec::new()),
        };
        for value in wrong {
            let outcome = self.with(pointer, name, Some(&value));
            // In a form, each value of a field with a text is a text.
            let is_text = self.body.get("file").is_some()
                && !value.is_string()
                && fits(&json!("x"), field, "").is_ok();
            if outcome.is_ok() && (is_text || !is_read && READ_LATE.contains(&name)) {
                continue;
            }
            // The type determines the other fields, and one of these may be the first fault.
            let object = path.strip_suffix(".type").unwrap_or(path);
            let is_named = matches!(&outcome, Err(Some(param)) if names(param, object));
            assert!(is_named, "{path} must not be {value}, but: {outcome:?}");
            self.tried.insert(path.to_owned());
        }
        for value in right {
            let outcome = self.with(pointer, name, Some(&value));
            // Another field may miss its own partner.
            let is_refused = matches!(&outcome, Err(Some(param)) if names(param, path));
            assert!(
                !is_refused || depends(path),
                "{path} may be {value}, but: {outcome:?}"
            );
        }
    }

    /// Reads the body with another value of a field.
    fn with(&self, pointer: &str, name: &str, value: Option<&Value>) -> Result<(), Option<String>> {
        let mut body = self.body.clone();
        let object = body.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
        match value {
            Some(value) => object.insert(name.to_owned(), value.clone()),
            None => object.remove(name),
        };
        (self.read)(&body)
    }
}

/// Fields that are read only in an object of their type.
const READ_LATE: [&str; 7] = [
    "source",
    "input",
    "content",
    "schema",
    "parameters",
    "format",
    "args",
];

/// Whether an error names a field, one within it, or the object of the field: a document or a voice is read as a whole.
fn names(param: &str, path: &str) -> bool {
    // Errors have the names of fields after their form is read, or before.
    let param = match param {
        "image" => "images",
        "timestamp_granularities" => "timestamp_granularities[]",
        param => param,
    };
    let object = path.rsplit_once('.').map(|(object, _)| object);
    let rest = param.strip_prefix(path);
    object == Some(param)
        || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Fields with values that other fields determine: the type of an object, and names of the request's own tools.
fn depends(path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or_default();
    let by_other_fields = [
        "type",
        "role",
        "mode",
        "tool_choice",
        "name",
        "id",
        "tool_call_id",
        "tool_use_id",
        "detail",
        "max_tokens",
        "budget_tokens",
        "display",
        "namespace",
        "timestamp_granularities[]",
        "partial_images",
        "file_id",
        "thinkingBudget",
        "thinkingLevel",
        "responseMimeType",
        "text",
        "title",
        "previous_response_id",
        "call_id",
        "provider",
        "stream",
        "n",
    ];
    by_other_fields.contains(&last)
}

/// Checks that each reader does what the schema of its request promises.
pub(crate) fn readers_keep_promises(requests: Vec<(&'static str, Reader, Value)>) {
    for (name, read, body) in requests {
        let schema = &SCHEMAS[name];
        assert_eq!(read(&body), Ok(()), "{name}");
        fits(&body, schema, "").unwrap();
        let mut attempt = Attempt {
            read,
            body: &body,
            tried: BTreeSet::new(),
        };
        attempt.try_object(&body, schema, "", "");
        assert!(attempt.tried.len() > 1, "{name}: {:?}", attempt.tried);
    }
}

/// Checks that each field of a schema has a description for people.
pub(crate) fn fields_are_described() {
    for (name, schema) in &*SCHEMAS {
        let Some(fields) = schema["properties"].as_object() else {
            continue;
        };
        for (field, schema) in fields {
            let is_told = schema["description"]
                .as_str()
                .is_some_and(|text| text.ends_with('.'));
            assert!(is_told, "{name}.{field}: {schema}");
        }
    }
}
