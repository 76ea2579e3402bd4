//! Changes of documents (RFC 7644 §3.5.2).
//!
//! Directories deviate from the standard, so weir also accepts `op` in any case, paths as names of a value without
//! `path`, members to remove as `value`, and a selected value that does not exist yet, which it creates.

use std::collections::HashSet;

use scim_v2::filter::{AttrExp, AttrPath, CompValue, CompareOp, PatchPath, ValFilter};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Kind;
use super::document::{Attribute, Document, Values, find, read_value, require};
use super::error::ScimError;

/// The maximum operations of a patch.
const MAX_OPERATIONS: usize = 1_000;

/// The body of a patch.
#[derive(Deserialize)]
struct PatchRequest {
    #[serde(rename = "Operations", alias = "operations")]
    operations: Vec<Operation>,
}

#[derive(Deserialize)]
struct Operation {
    op: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    value: Option<Value>,
}

/// A change of the value at a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Add,
    Replace,
    Remove,
}

/// A patch, as far as it can be checked without its document.
pub(super) struct Patch(Vec<(Act, Operation)>);

impl Patch {
    /// Reads the body of a request.
    pub(super) fn read(body: &[u8]) -> Result<Self, ScimError> {
        let request: PatchRequest = serde_json::from_slice(body)
            .map_err(|error| ScimError::syntax(format!("The body is no patch: {error}.")))?;
        if !(1..=MAX_OPERATIONS).contains(&request.operations.len()) {
            let what = format!("A patch has 1 to {MAX_OPERATIONS} `Operations`.");
            return Err(ScimError::syntax(what));
        }
        let operations = request.operations.into_iter().map(|operation| {
            let act = match &*operation.op.to_ascii_lowercase() {
                "add" => Act::Add,
                "replace" => Act::Replace,
                "remove" => Act::Remove,
                _ => return Err(ScimError::syntax("`op` is add, replace or remove.")),
            };
            if act != Act::Remove && operation.value.is_none() {
                return Err(ScimError::value("value", "It is required."));
            }
            Ok((act, operation))
        });
        operations.collect::<Result<_, _>>().map(Self)
    }

    /// Applies the patch to a document: completely, or not at all.
    pub(super) fn apply(&self, kind: Kind, mut document: Document) -> Result<Document, ScimError> {
        for (act, operation) in &self.0 {
            let value = operation.value.clone().unwrap_or_default();
            match (&operation.path, value) {
                (Some(path), value) => apply(kind, &mut document, *act, path, value)?,
                (None, _) if *act == Act::Remove => return Err(ScimError::target("")),
                (None, Value::Object(values)) => {
                    apply_all(kind, &mut document, *act, values)?;
                }
                (None, _) => return Err(ScimError::value("value", "It is an object.")),
            }
        }
        require(kind, &document)?;
        Ok(document)
    }
}

/// Applies the attributes of an object, whose names may be paths.
fn apply_all(
    kind: Kind,
    document: &mut Document,
    act: Act,
    values: Map<String, Value>,
) -> Result<(), ScimError> {
    for (name, value) in values {
        match value {
            // The attributes of one schema, by the name of the schema.
            Value::Object(values) if name.eq_ignore_ascii_case(kind.schema()) => {
                apply_all(kind, document, act, values)?;
            }
            // An extension, which weir does not keep.
            _ if name.contains(':') && name.parse::<PatchPath>().is_err() => {}
            value => apply(kind, document, act, &name, value)?,
        }
    }
    Ok(())
}

fn apply(
    kind: Kind,
    document: &mut Document,
    act: Act,
    path: &str,
    value: Value,
) -> Result<(), ScimError> {
    let parsed: PatchPath = path.parse().map_err(|_| ScimError::path(path))?;
    let (attr, filter, part) = match parsed {
        PatchPath::Attr(attr) => {
            let part = attr.sub_attr.clone();
            (attr, None, part)
        }
        PatchPath::Value(selected) => (selected.attr, Some(selected.filter), selected.sub_attr),
    };
    let Some(attribute) = own(kind, &attr) else {
        // Attributes that weir does not keep, `id` and `schemas` among them.
        return Ok(());
    };
    let change = Change {
        act,
        attribute,
        path,
    };
    match (&attribute.values, filter, part) {
        (Values::Text | Values::Boolean, None, None) => change.set(document, value),
        (Values::Complex(parts), None, Some(part)) => {
            change.set_part(document, parts, &part, value)
        }
        (Values::Complex(_), None, None) => change.merge(document, value),
        (Values::List(parts, most), filter, part) => {
            let selection = Selection {
                parts,
                filter,
                part,
            };
            change.list(document, &selection, value)?;
            let length = document.get(attribute.name).and_then(Value::as_array);
            if length.is_some_and(|list| list.len() > *most) {
                let what = format!("It has at most {most} values.");
                return Err(ScimError::value(attribute.name, &what));
            }
            Ok(())
        }
        _ => Err(ScimError::path(path)),
    }
}

/// Returns the attribute that weir keeps; an attribute of another schema is none.
fn own(kind: Kind, attr: &AttrPath) -> Option<&'static Attribute> {
    let uri = attr.uri.as_deref();
    if uri.is_some_and(|uri| !uri.eq_ignore_ascii_case(kind.schema())) {
        return None;
    }
    find(kind.attributes(), &attr.name)
}

/// The values of a list that a path selects.
struct Selection {
    parts: &'static [Attribute],
    filter: Option<ValFilter>,
    /// The attribute of each selected value.
    part: Option<String>,
}

/// A change of one attribute.
struct Change<'a> {
    act: Act,
    attribute: &'static Attribute,
    path: &'a str,
}

impl Change<'_> {
    /// Sets or removes a simple value.
    fn set(&self, document: &mut Document, value: Value) -> Result<(), ScimError> {
        let name = self.attribute.name;
        let value = match self.act {
            Act::Remove => None,
            Act::Add | Act::Replace => read_value(self.attribute, value, self.path)?,
        };
        match value {
            Some(value) => drop(document.insert(name.to_owned(), value)),
            None if self.attribute.is_required => return Err(ScimError::mutability(name)),
            None => drop(document.remove(name)),
        }
        Ok(())
    }

    /// Sets or removes a part of an object.
    fn set_part(
        &self,
        document: &mut Document,
        parts: &'static [Attribute],
        part: &str,
        value: Value,
    ) -> Result<(), ScimError> {
        let Some(part) = find(parts, part) else {
            return Ok(());
        };
        let name = self.attribute.name;
        let mut object = match document.remove(name) {
            Some(Value::Object(object)) => object,
            _ => Map::new(),
        };
        let change = Change {
            attribute: part,
            ..*self
        };
        change.set(&mut object, value)?;
        if !object.is_empty() {
            document.insert(name.to_owned(), Value::Object(object));
        }
        Ok(())
    }

    /// Sets parts of an object and leaves the others, or removes the object.
    fn merge(&self, document: &mut Document, value: Value) -> Result<(), ScimError> {
        let name = self.attribute.name;
        let value = match self.act {
            Act::Remove => None,
            Act::Add | Act::Replace => read_value(self.attribute, value, self.path)?,
        };
        match (value, document.get_mut(name)) {
            (Some(Value::Object(parts)), Some(Value::Object(object))) => object.extend(parts),
            (Some(value), _) => drop(document.insert(name.to_owned(), value)),
            (None, _) => drop(document.remove(name)),
        }
        Ok(())
    }

    /// Changes a list.
    fn list(
        &self,
        document: &mut Document,
        selection: &Selection,
        value: Value,
    ) -> Result<(), ScimError> {
        let name = self.attribute.name;
        let mut list = match document.remove(name) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        match (&selection.filter, &selection.part) {
            (None, None) => self.whole(&mut list, value)?,
            (None, Some(part)) => self.each(&mut list, selection.parts, part, &value, |_| true)?,
            (Some(filter), part) => {
                let is_selected = |item: &Value| matches(filter, item);
                if !list.iter().any(is_selected) {
                    match (self.act, example(filter, selection.parts)) {
                        (Act::Remove, _) => {}
                        (_, Some(item)) => list.push(Value::Object(item)),
                        (_, None) => return Err(ScimError::target(self.path)),
                    }
                }
                match (self.act, part) {
                    (Act::Remove, None) => list.retain(|item| !is_selected(item)),
                    (_, Some(part)) => {
                        // A changed part may no longer match.
                        self.each(&mut list, selection.parts, part, &value, is_selected)?;
                    }
                    (_, None) => {
                        let read = read_value(self.attribute, value, self.path)?;
                        let Some(Value::Array(values)) = read else {
                            return Err(ScimError::value(self.path, "It is an object."));
                        };
                        let Some(Value::Object(parts)) = values.into_iter().next() else {
                            return Err(ScimError::value(self.path, "It is an object."));
                        };
                        for item in list.iter_mut().filter(|item| matches(filter, item)) {
                            if let Value::Object(item) = item {
                                item.extend(parts.clone());
                            }
                        }
                    }
                }
            }
        }
        list.retain(|item| item.as_object().is_some_and(|item| !item.is_empty()));
        keep_one_primary(&mut list);
        if !list.is_empty() {
            document.insert(name.to_owned(), Value::Array(list));
        }
        Ok(())
    }

    /// Adds values to a list, replaces or removes all, or removes the values that the request names.
    fn whole(&self, list: &mut Vec<Value>, value: Value) -> Result<(), ScimError> {
        let values = match read_value(self.attribute, value, self.path)? {
            Some(Value::Array(values)) => values,
            _ => Vec::new(),
        };
        match self.act {
            // A group has thousands of members, so a search of the list for each would take long.
            Act::Add => {
                let mut known: HashSet<Value> = list.iter().cloned().collect();
                list.extend(
                    values
                        .into_iter()
                        .filter(|value| known.insert(value.clone())),
                );
            }
            Act::Remove if !values.is_empty() => {
                let removed: HashSet<Value> = values.into_iter().collect();
                list.retain(|item| !removed.contains(item));
            }
            Act::Replace | Act::Remove => *list = values,
        }
        Ok(())
    }

    /// Changes a part of each selected value.
    fn each(
        &self,
        list: &mut [Value],
        parts: &'static [Attribute],
        part: &str,
        value: &Value,
        is_selected: impl Fn(&Value) -> bool,
    ) -> Result<(), ScimError> {
        let Some(part) = find(parts, part) else {
            return Ok(());
        };
        let change = Change {
            attribute: part,
            ..*self
        };
        for item in list.iter_mut().filter(|item| is_selected(item)) {
            if let Value::Object(item) = item {
                change.set(item, value.clone())?;
            }
        }
        Ok(())
    }
}

/// Only the last value that a request makes the primary one stays so (RFC 7644 §3.5.2).
fn keep_one_primary(list: &mut [Value]) {
    let is_primary = |item: &Value| item["primary"] == Value::Bool(true);
    let Some(last) = list.iter().rposition(is_primary) else {
        return;
    };
    for item in &mut list[..last] {
        if is_primary(item) {
            item["primary"] = Value::Bool(false);
        }
    }
}

/// Whether a filter selects a value of a list.
fn matches(filter: &ValFilter, item: &Value) -> bool {
    match filter {
        ValFilter::Not(filter) => !matches(filter, item),
        ValFilter::And(filters) => filters.iter().all(|filter| matches(filter, item)),
        ValFilter::Or(filters) => filters.iter().any(|filter| matches(filter, item)),
        ValFilter::Attr(AttrExp::Present(attr)) => part_of(item, attr).is_some(),
        ValFilter::Attr(AttrExp::Comparison(attr, op, wanted)) => {
            let part = part_of(item, attr);
            match (op, wanted) {
                (CompareOp::Eq, wanted) => is_equal(part, wanted),
                (CompareOp::Ne, wanted) => !is_equal(part, wanted),
                (op, CompValue::Str(wanted)) => {
                    let wanted = wanted.to_lowercase();
                    let part = part.and_then(Value::as_str).map(str::to_lowercase);
                    part.is_some_and(|part| compare(op, &part, &wanted))
                }
                _ => false,
            }
        }
    }
}

fn compare(op: &CompareOp, part: &str, wanted: &str) -> bool {
    match op {
        CompareOp::Eq => part == wanted,
        CompareOp::Ne => part != wanted,
        CompareOp::Co => part.contains(wanted),
        CompareOp::Sw => part.starts_with(wanted),
        CompareOp::Ew => part.ends_with(wanted),
        CompareOp::Gt => part > wanted,
        CompareOp::Lt => part < wanted,
        CompareOp::Ge => part >= wanted,
        CompareOp::Le => part <= wanted,
    }
}

fn part_of<'a>(item: &'a Value, attr: &AttrPath) -> Option<&'a Value> {
    let item = item.as_object()?;
    let found = item
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(&attr.name));
    found.map(|(_, value)| value)
}

fn is_equal(part: Option<&Value>, wanted: &CompValue) -> bool {
    match (part, wanted) {
        (Some(Value::String(part)), CompValue::Str(wanted)) => part.eq_ignore_ascii_case(wanted),
        (Some(Value::Bool(part)), CompValue::True) => *part,
        (Some(Value::Bool(part)), CompValue::False) => !part,
        (None, CompValue::Null) => true,
        _ => false,
    }
}

/// Returns the value that a comparison for equality describes.
fn example(filter: &ValFilter, parts: &'static [Attribute]) -> Option<Map<String, Value>> {
    let ValFilter::Attr(AttrExp::Comparison(attr, CompareOp::Eq, CompValue::Str(wanted))) = filter
    else {
        return None;
    };
    let part = find(parts, &attr.name).filter(|part| matches!(part.values, Values::Text))?;
    Some(Map::from_iter([(
        part.name.to_owned(),
        Value::from(wanted.clone()),
    )]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Alice, after operations.
    fn patched(operations: Value) -> Result<Value, ScimError> {
        let Value::Object(document) = json!({
            "userName": "alice", "active": true,
            "name": { "givenName": "Alice", "familyName": "Ames" },
            "emails": [{ "value": "a@acme.com", "type": "work", "primary": true }],
        }) else {
            unreachable!()
        };
        let body = json!({ "Operations": operations }).to_string();
        let patched = Patch::read(body.as_bytes())?.apply(Kind::User, document)?;
        Ok(Value::Object(patched))
    }

    fn value_at(operations: Value, pointer: &str) -> Value {
        let document = patched(operations).expect("a valid patch");
        document.pointer(pointer).cloned().unwrap_or_default()
    }

    #[test]
    fn simple_values_are_set_and_removed() {
        let replace = json!([{ "op": "replace", "path": "active", "value": false }]);
        assert_eq!(value_at(replace, "/active"), false);
        // Entra's form.
        let entra = json!([{ "op": "Replace", "path": "active", "value": "False" }]);
        assert_eq!(value_at(entra, "/active"), false);
        // Okta's form.
        let okta = json!([{ "op": "replace", "value": { "active": false, "id": "x" } }]);
        assert_eq!(value_at(okta, "/active"), false);
        let prefixed = json!([{ "op": "add", "path": "urn:ietf:params:scim:schemas:core:2.0:User:displayName", "value": "Al" }]);
        assert_eq!(value_at(prefixed, "/displayName"), "Al");
        let removed = json!([{ "op": "remove", "path": "name.givenName" }]);
        assert_eq!(value_at(removed, "/name"), json!({ "familyName": "Ames" }));
        let dotted = json!([{ "op": "replace", "value": { "name.givenName": "Al" } }]);
        assert_eq!(value_at(dotted, "/name/givenName"), "Al");
        let part = json!([{ "op": "replace", "path": "name", "value": { "givenName": "Al" } }]);
        assert_eq!(
            value_at(part, "/name"),
            json!({ "givenName": "Al", "familyName": "Ames" })
        );
    }

    #[test]
    fn lists_change_by_value_and_by_filter() {
        let home = json!({ "value": "a@home.org", "type": "home", "primary": true });
        let add = json!([{ "op": "add", "path": "emails", "value": [home] }]);
        let emails = value_at(add, "/emails");
        assert_eq!(emails[0]["primary"], false);
        assert_eq!(emails[1], home);
        let path = "emails[type eq \"WORK\"].value";
        let by_filter = json!([{ "op": "replace", "path": path, "value": "b@acme.com" }]);
        assert_eq!(value_at(by_filter, "/emails/0/value"), "b@acme.com");
        // Entra adds values that do not exist yet.
        let path = "emails[type eq \"other\"].value";
        let created = json!([{ "op": "add", "path": path, "value": "c@acme.com" }]);
        assert_eq!(
            value_at(created, "/emails/1"),
            json!({ "type": "other", "value": "c@acme.com" })
        );
        let removed = json!([{ "op": "remove", "path": "emails[primary eq true]" }]);
        assert_eq!(value_at(removed, "/emails"), Value::Null);
    }

    #[test]
    fn foreign_attributes_are_ignored_and_wrong_ones_refused() {
        let enterprise = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
        for operation in [
            json!({ "op": "add", "path": "title", "value": "Dr" }),
            json!({ "op": "add", "path": format!("{enterprise}:department"), "value": "x" }),
            json!({ "op": "add", "value": { enterprise: { "department": "x" } } }),
            json!({ "op": "remove", "path": "title" }),
        ] {
            let name = operation.to_string();
            assert_eq!(value_at(json!([operation]), "/userName"), "alice", "{name}");
        }
        for operation in [
            json!({ "op": "move", "path": "active", "value": 1 }),
            json!({ "op": "replace", "path": "active", "value": "maybe" }),
            json!({ "op": "replace", "path": "active" }),
            json!({ "op": "remove", "path": "userName" }),
            json!({ "op": "replace", "path": "userName", "value": " " }),
            json!({ "op": "remove" }),
            json!({ "op": "add", "path": "emails[", "value": 1 }),
            json!({ "op": "replace", "path": "emails[value sw \"z\"].type", "value": "x" }),
            json!({ "op": "replace", "value": 7 }),
        ] {
            assert!(patched(json!([operation])).is_err(), "{operation}");
        }
        assert!(patched(json!([])).is_err());
    }
}
