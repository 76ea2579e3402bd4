//! The attributes of users and groups that weir keeps. It ignores all others, as the standard allows (RFC 7644 §3.3).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Kind;
use super::error::ScimError;

/// The attributes of a resource, with the names of the schema.
pub(super) type Document = Map<String, Value>;

/// The maximum bytes of a text.
const MAX_TEXT_BYTES: usize = 500;

/// An attribute of a schema.
#[derive(Debug)]
pub(super) struct Attribute {
    /// Its name; clients may write it in any case.
    pub(super) name: &'static str,
    pub(super) values: Values,
    pub(super) is_required: bool,
    pub(super) description: &'static str,
}

/// The values of an attribute.
#[derive(Debug)]
pub(super) enum Values {
    Text,
    Boolean,
    /// An object.
    Complex(&'static [Attribute]),
    /// Up to so many objects.
    List(&'static [Attribute], usize),
}

const fn optional(name: &'static str, values: Values, description: &'static str) -> Attribute {
    Attribute {
        name,
        values,
        is_required: false,
        description,
    }
}

const fn required(name: &'static str, values: Values, description: &'static str) -> Attribute {
    Attribute {
        name,
        values,
        is_required: true,
        description,
    }
}

/// The common attribute that names a resource in the directory. It names the user at the issuer.
pub(super) const EXTERNAL_ID: &str = "externalId";

const NAME: [Attribute; 3] = [
    optional("formatted", Values::Text, "The full name."),
    optional("familyName", Values::Text, "The family name."),
    optional("givenName", Values::Text, "The given name."),
];

const EMAIL: [Attribute; 3] = [
    optional("value", Values::Text, "The e-mail address."),
    optional("type", Values::Text, "The use, such as `work`."),
    optional(
        "primary",
        Values::Boolean,
        "Whether it is the preferred address.",
    ),
];

const USER: [Attribute; 6] = [
    required("userName", Values::Text, "The user's unique name."),
    optional(
        EXTERNAL_ID,
        Values::Text,
        "The user's name in the issuer's tokens.",
    ),
    optional("displayName", Values::Text, "The name that weir shows."),
    optional(
        "name",
        Values::Complex(&NAME),
        "The name, if there is no display name.",
    ),
    optional(
        "active",
        Values::Boolean,
        "Whether the user may use weir. Default: true.",
    ),
    optional("emails", Values::List(&EMAIL, 20), "E-mail addresses."),
];

const MEMBER: [Attribute; 1] = [required("value", Values::Text, "The id of a user.")];

/// The attribute with a group's members, which have a table of their own.
pub(super) const MEMBERS: &str = "members";

/// The maximum members of a group.
pub(super) const MAX_MEMBERS: usize = 10_000;

const GROUP: [Attribute; 3] = [
    required(
        "displayName",
        Values::Text,
        "The name that settings map to roles.",
    ),
    optional(
        EXTERNAL_ID,
        Values::Text,
        "The group's id in the directory.",
    ),
    optional(
        MEMBERS,
        Values::List(&MEMBER, MAX_MEMBERS),
        "The users of the group.",
    ),
];

impl Kind {
    /// The attributes that weir keeps.
    pub(super) const fn attributes(self) -> &'static [Attribute] {
        match self {
            Self::User => &USER,
            Self::Group => &GROUP,
        }
    }

    /// The attribute with the resource's name.
    pub(super) const fn name_attribute(self) -> &'static str {
        match self {
            Self::User => "userName",
            Self::Group => "displayName",
        }
    }
}

/// Returns the attribute with a name, in any case.
pub(super) fn find(attributes: &'static [Attribute], name: &str) -> Option<&'static Attribute> {
    attributes
        .iter()
        .find(|attribute| attribute.name.eq_ignore_ascii_case(name))
}

/// Reads the body of a request, whose optional attributes may be missing.
///
/// # Errors
///
/// 400 that names the attribute.
pub(super) fn read(kind: Kind, body: &[u8]) -> Result<Document, ScimError> {
    let body: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| ScimError::syntax(format!("The body is no JSON object: {error}.")))?;
    let document = read_object(kind.attributes(), body, "")?;
    require(kind, &document)?;
    Ok(document)
}

/// Refuses a document without a required attribute.
pub(super) fn require(kind: Kind, document: &Document) -> Result<(), ScimError> {
    let is_missing = |attribute: &&Attribute| {
        let value = document.get(attribute.name).and_then(Value::as_str);
        attribute.is_required && value.is_none_or(|value| value.trim().is_empty())
    };
    match kind.attributes().iter().find(is_missing) {
        Some(attribute) => Err(ScimError::value(attribute.name, "It is required.")),
        None => Ok(()),
    }
}

fn read_object(
    attributes: &'static [Attribute],
    object: Map<String, Value>,
    path: &str,
) -> Result<Document, ScimError> {
    let mut document = Document::new();
    for (name, value) in object {
        let Some(attribute) = find(attributes, &name) else {
            continue;
        };
        let path = match path {
            "" => attribute.name.to_owned(),
            path => format!("{path}.{}", attribute.name),
        };
        if let Some(value) = read_value(attribute, value, &path)? {
            document.insert(attribute.name.to_owned(), value);
        }
    }
    Ok(document)
}

/// Reads the value of an attribute; `None` if it has no value.
pub(super) fn read_value(
    attribute: &Attribute,
    value: Value,
    path: &str,
) -> Result<Option<Value>, ScimError> {
    match (&attribute.values, value) {
        (_, Value::Null) => Ok(None),
        (Values::Text, Value::String(text)) => {
            if text.len() > MAX_TEXT_BYTES || text.contains(char::is_control) {
                let what =
                    format!("It has at most {MAX_TEXT_BYTES} bytes, and no control characters.");
                return Err(ScimError::value(path, &what));
            }
            Ok(Some(Value::String(text)))
        }
        (Values::Boolean, Value::Bool(value)) => Ok(Some(Value::Bool(value))),
        // Entra sends "True" and "False".
        (Values::Boolean, Value::String(text)) if text.eq_ignore_ascii_case("true") => {
            Ok(Some(Value::Bool(true)))
        }
        (Values::Boolean, Value::String(text)) if text.eq_ignore_ascii_case("false") => {
            Ok(Some(Value::Bool(false)))
        }
        (Values::Complex(parts), Value::Object(object)) => {
            let document = read_object(parts, object, path)?;
            Ok((!document.is_empty()).then_some(Value::Object(document)))
        }
        (Values::List(parts, most), Value::Array(values)) => {
            if values.len() > *most {
                let what = format!("It has at most {most} values.");
                return Err(ScimError::value(path, &what));
            }
            let mut list = Vec::new();
            for value in values {
                list.extend(read_item(parts, value, path)?);
            }
            Ok((!list.is_empty()).then_some(Value::Array(list)))
        }
        (Values::List(parts, _), value @ Value::Object(_)) => {
            let item = read_item(parts, value, path)?;
            Ok(item.map(|item| Value::Array(vec![item])))
        }
        (values, _) => Err(ScimError::value(path, values.wanted())),
    }
}

fn read_item(
    parts: &'static [Attribute],
    value: Value,
    path: &str,
) -> Result<Option<Value>, ScimError> {
    let Value::Object(object) = value else {
        return Err(ScimError::value(path, "Each value is an object."));
    };
    let item = read_object(parts, object, path)?;
    let missing = parts
        .iter()
        .find(|part| part.is_required && !item.contains_key(part.name));
    match missing {
        Some(part) => {
            let path = format!("{path}.{}", part.name);
            Err(ScimError::value(&path, "It is required."))
        }
        None => Ok((!item.is_empty()).then_some(Value::Object(item))),
    }
}

impl Values {
    const fn wanted(&self) -> &'static str {
        match self {
            Self::Text => "It is a text.",
            Self::Boolean => "It is true or false.",
            Self::Complex(_) => "It is an object.",
            Self::List(..) => "It is a list of objects.",
        }
    }
}

/// Returns a text of a document.
pub(super) fn text<'a>(document: &'a Document, name: &str) -> Option<&'a str> {
    document.get(name).and_then(Value::as_str)
}

/// Whether a user may use weir.
pub(super) fn is_active(document: &Document) -> bool {
    document.get("active") != Some(&Value::Bool(false))
}

/// Returns the claim with which the issuer's tokens name a user.
pub(super) fn subject(document: &Document) -> Option<&str> {
    let external_id = text(document, EXTERNAL_ID).filter(|id| !id.is_empty());
    external_id.or_else(|| text(document, "userName"))
}

/// Returns the name that weir shows for a user.
pub(super) fn shown_name(document: &Document) -> Option<String> {
    let given = |text: Option<&str>| {
        text.map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    if let Some(name) = given(text(document, "displayName")) {
        return Some(name);
    }
    let name = document.get("name")?.as_object()?;
    let joined = ["givenName", "familyName"].map(|part| text(name, part).unwrap_or_default());
    given(text(name, "formatted")).or_else(|| given(Some(&joined.join(" "))))
}

/// Returns the ids of a group's members.
pub(super) fn members(document: &Document) -> BTreeSet<String> {
    let members = document.get(MEMBERS).and_then(Value::as_array);
    let ids = members
        .into_iter()
        .flatten()
        .filter_map(|member| member["value"].as_str());
    ids.map(str::to_owned).collect()
}
