//! Schemas of requests and responses, for the gateway's OpenAPI document.
//!
//! A dialect declares each object once: [`object!`](crate::json::object) makes its reader and its schema, [`written!`] its
//! writer and its schema. Doc comments of fields are descriptions for users of the API. A [`Rule`] states a check that
//! the dialect makes after reading; `schema_tests` tries each rule on the reader, so that a schema promises what the
//! reader does.
//!
//! **Invariant:** the schemas contain nothing from a configuration.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use weir_ledger::Credits;

/// The place of schemas in an OpenAPI document.
const PLACE: &str = "#/components/schemas/";

/// A type with a schema.
pub trait Described {
    /// Returns the schema, and adds those to which it refers.
    fn schema(schemas: &mut Schemas) -> Value;
}

/// Named schemas.
#[derive(Default)]
pub struct Schemas {
    /// Each schema and its type; null while it is being written, because types may contain themselves.
    known: BTreeMap<&'static str, (&'static str, Value)>,
}

/// A promise about a field beyond its type.
#[derive(Clone, Copy)]
pub enum Rule {
    /// Clients must send the field.
    Required,
    /// The field is not described.
    Hidden,
    /// The minimum and maximum characters; [`usize::MAX`] if only the body has a limit.
    Chars(usize, usize),
    /// The minimum and maximum characters of a list's items.
    EachChars(usize, usize),
    /// The pattern of a text.
    Pattern(&'static str),
    /// The minimum and maximum of a number.
    Between(f64, f64),
    /// The minimum of a number.
    AtLeast(u32),
    /// The only valid number.
    Only(u32),
    /// The only valid boolean.
    Always(bool),
    /// The minimum items.
    Items(usize),
    /// The valid words.
    OneOf(&'static [&'static str]),
    /// The valid words of a list's items.
    EachOf(&'static [&'static str]),
    /// An object with any fields.
    Object,
    /// The schema of the value, which is read later than its object, or written as JSON.
    Is(fn(&mut Schemas) -> Value),
}

/// Fields that providers know and weir does not read: each with its meaning.
pub type KnownFields = &'static [(&'static str, &'static str)];

/// The fields of an object that it does not declare.
pub enum FurtherFields {
    /// They are rejected.
    Refused,
    /// They are valid; providers know some of them.
    Free(KnownFields),
}

/// A field of an object.
pub struct Field {
    pub name: &'static str,
    pub docs: &'static [&'static str],
    /// The arguments of serde's attribute, for a writer.
    pub serde: &'static str,
    pub schema: Value,
    pub rules: Vec<Rule>,
}

/// An object's name, description and kind.
pub struct ObjectKind {
    pub name: &'static str,
    pub docs: &'static [&'static str],
    /// The Rust type, because each name belongs to one.
    pub of: &'static str,
    /// Whether the names of fields are in camel case in JSON.
    pub is_camel_case: bool,
}

impl Schemas {
    /// Returns a reference to the schema with this name, and writes the schema if it is new.
    ///
    /// # Panics
    ///
    /// If the name belongs to another type.
    pub fn named(
        &mut self,
        name: &'static str,
        of: &'static str,
        write: impl FnOnce(&mut Self) -> Value,
    ) -> Value {
        match self.known.get(name) {
            Some((known, _)) => assert_eq!(*known, of, "two types have the schema {name}"),
            None => {
                self.known.insert(name, (of, Value::Null));
                let schema = write(self);
                self.known.insert(name, (of, schema));
            }
        }
        json!({ "$ref": format!("{PLACE}{name}") })
    }

    /// Adds a schema that no type has.
    pub fn add(&mut self, name: &'static str, schema: Value) {
        self.named(name, name, |_| schema);
    }

    /// Returns a reference to the schema of an object that clients send.
    pub fn read_object(
        &mut self,
        kind: &ObjectKind,
        others: &FurtherFields,
        fields: impl FnOnce(&mut Self) -> Vec<Field>,
    ) -> Value {
        self.named(kind.name, kind.of, |schemas| {
            read_object(kind, others, fields(schemas))
        })
    }

    /// Returns a reference to the schema of an object that weir writes.
    pub fn written_object(
        &mut self,
        kind: &ObjectKind,
        fields: impl FnOnce(&mut Self) -> Vec<Field>,
    ) -> Value {
        self.named(kind.name, kind.of, |schemas| {
            let fields = fields(schemas);
            written_object(schemas, kind, fields)
        })
    }

    /// Returns a reference to the schema of an object with a fixed word in its field `tag`.
    pub fn tagged_object(
        &mut self,
        kind: &ObjectKind,
        (tag, word): (&'static str, &str),
        fields: impl FnOnce(&mut Self) -> Vec<Field>,
    ) -> Value {
        self.named(kind.name, kind.of, |schemas| {
            let fields = fields(schemas);
            let mut schema = written_object(schemas, kind, fields);
            schema["properties"][tag] =
                json!({ "type": "string", "enum": [word], "description": "The kind of the object." });
            push(&mut schema, "required", tag.into());
            schema
        })
    }

    /// Returns the schemas by name.
    pub fn into_components(self) -> Map<String, Value> {
        let known = self.known.into_iter();
        known
            .map(|(name, (_, schema))| (name.to_owned(), schema))
            .collect()
    }
}

/// Adds an item to the list in a schema's field.
fn push(schema: &mut Value, field: &str, item: Value) {
    match &mut schema[field] {
        Value::Array(list) => list.push(item),
        absent => *absent = json!([item]),
    }
}

pub fn described(mut schema: Value, text: impl Into<String>) -> Value {
    let text = text.into();
    if !text.is_empty() {
        schema["description"] = text.into();
    }
    schema
}

fn read_object(kind: &ObjectKind, others: &FurtherFields, fields: Vec<Field>) -> Value {
    let mut schema = json!({ "type": "object", "properties": {} });
    let mut refused = Vec::new();
    for field in fields {
        let is = |rule: fn(&Rule) -> bool| field.rules.iter().any(rule);
        if is(|rule| matches!(rule, Rule::Hidden)) {
            continue;
        }
        // The type of a field that weir rejects by its name.
        if field.schema.is_null() {
            refused.push(format!("`{}`", field.name));
            continue;
        }
        let is_required = is(|rule| matches!(rule, Rule::Required));
        let mut own = field.schema;
        apply(&mut own, &field.rules);
        if is_required {
            push(&mut schema, "required", field.name.into());
        } else {
            own = nullable(own);
        }
        schema["properties"][field.name] = described(own, text(field.docs));
    }
    match others {
        FurtherFields::Refused => schema["additionalProperties"] = false.into(),
        FurtherFields::Free(fields) => {
            for (name, meaning) in *fields {
                let description =
                    format!("{meaning} weir does not read this field: the provider does.");
                schema["properties"][*name] = json!({ "description": description });
            }
        }
    }
    let mut said = text(kind.docs);
    if !refused.is_empty() {
        said += &format!(" Not supported: {}.", refused.join(", "));
    }
    described(schema, said)
}

fn written_object(schemas: &Schemas, kind: &ObjectKind, fields: Vec<Field>) -> Value {
    let mut schema = json!({ "type": "object", "properties": {} });
    for field in fields {
        let is = |word: &str| field.serde.split([',', ' ']).any(|one| one == word);
        if is("skip") || field.rules.iter().any(|rule| matches!(rule, Rule::Hidden)) {
            continue;
        }
        if is("flatten") {
            schemas.flatten(&mut schema, &field.schema);
            continue;
        }
        let renamed = field.serde.split_once("rename = \"");
        let name = match renamed.and_then(|(_, rest)| rest.split('"').next()) {
            Some(name) => name.to_owned(),
            None if kind.is_camel_case => camel_case(field.name),
            None => field.name.to_owned(),
        };
        let mut own = field.schema;
        if is("skip_serializing_if") {
            own = without_null(own);
        } else {
            push(&mut schema, "required", name.as_str().into());
        }
        apply(&mut own, &field.rules);
        schema["properties"][name] = described(own, text(field.docs));
    }
    described(schema, text(kind.docs))
}

impl Schemas {
    /// Returns the schema of a field of a named object.
    pub fn field(&self, object: &Value, field: &str) -> Value {
        let name = object["$ref"]
            .as_str()
            .and_then(|name| name.strip_prefix(PLACE));
        let known = name.and_then(|name| self.known.get(name));
        known.map_or(Value::Null, |(_, schema)| {
            schema["properties"][field].clone()
        })
    }

    /// Adds the fields of another object. Those of an optional object are optional.
    pub fn flatten(&self, schema: &mut Value, other: &Value) {
        let inner = without_null(other.clone());
        let is_optional = inner != *other;
        let name = inner["$ref"]
            .as_str()
            .and_then(|name| name.strip_prefix(PLACE));
        let Some((_, other)) = name.and_then(|name| self.known.get(name)) else {
            return;
        };
        let alternatives = other["oneOf"].as_array().cloned();
        let fields = other["properties"].as_object();
        for (name, field) in fields.into_iter().flatten() {
            schema["properties"][name] = field.clone();
        }
        for name in other["required"].as_array().into_iter().flatten() {
            if !is_optional {
                push(schema, "required", name.clone());
            }
        }
        for alternative in alternatives.into_iter().flatten() {
            self.flatten(
                schema,
                &json!({ "anyOf": [alternative, { "type": "null" }] }),
            );
        }
    }
}

/// Applies a field's rules to its schema.
fn apply(schema: &mut Value, rules: &[Rule]) {
    for rule in rules {
        match *rule {
            Rule::Required | Rule::Hidden => {}
            Rule::Chars(least, most) => {
                on(schema, "string", |schema| {
                    if least > 0 {
                        schema["minLength"] = least.into();
                    }
                    if most < usize::MAX {
                        schema["maxLength"] = most.into();
                    }
                });
            }
            Rule::EachChars(least, most) => on(schema, "array", |schema| {
                schema["items"]["minLength"] = least.into();
                schema["items"]["maxLength"] = most.into();
            }),
            Rule::Pattern(pattern) => on(schema, "string", |schema| {
                schema["pattern"] = pattern.into()
            }),
            Rule::Between(least, most) => {
                schema["minimum"] = number(least);
                schema["maximum"] = number(most);
            }
            Rule::AtLeast(least) => schema["minimum"] = least.into(),
            Rule::Only(number) => *schema = json!({ "type": "integer", "enum": [number] }),
            // Generators of clients know no enumeration of booleans.
            Rule::Always(value) => *schema = json!({ "const": value }),
            Rule::Items(least) => on(schema, "array", |schema| schema["minItems"] = least.into()),
            Rule::OneOf(words) => on(schema, "string", |schema| {
                let null = schema["type"].is_array().then_some(Value::Null);
                let words = words.iter().map(|word| (*word).into());
                schema["enum"] = words.chain(null).collect();
            }),
            Rule::EachOf(words) => on(schema, "array", |schema| {
                schema["items"] = json!({ "type": "string", "enum": words });
            }),
            Rule::Object => *schema = json!({ "type": "object" }),
            // It is the type already.
            Rule::Is(_) => {}
        }
    }
}

/// Changes a schema of this type, or the alternatives of this type.
fn on(schema: &mut Value, kind: &str, change: impl Fn(&mut Value)) {
    let is_of_kind = |schema: &Value| {
        let kinds = &schema["type"];
        kinds == kind || kinds[0] == kind
    };
    if is_of_kind(schema) {
        return change(schema);
    }
    let alternatives = schema.get_mut("anyOf").and_then(Value::as_array_mut);
    let alternatives = alternatives.into_iter().flatten();
    alternatives.filter(|one| is_of_kind(one)).for_each(change);
}

/// A number in the form that a person writes.
fn number(number: f64) -> Value {
    match number.fract() == 0.0 {
        true => (number as i64).into(),
        false => number.into(),
    }
}

/// Returns an object's schema without some requirements, and without some fields.
pub fn without(schema: &Value, required: &[&str], fields: &[&str]) -> Value {
    let mut schema = schema.clone();
    if let Some(names) = schema["required"].as_array_mut() {
        names.retain(|name| !required.iter().any(|one| name == one));
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.retain(|name, _| !fields.contains(&name.as_str()));
    }
    schema
}

/// Returns a schema that also allows null.
pub fn nullable(mut schema: Value) -> Value {
    let nothing = json!({ "type": "null" });
    let is_typed = schema["type"].is_string();
    let has_null = schema["type"].is_array();
    let Some(fields) = schema.as_object_mut() else {
        return schema;
    };
    // Looking a field up has added it.
    fields.retain(|_, field| !field.is_null());
    if is_typed {
        let kind = schema["type"].take();
        schema["type"] = json!([kind, "null"]);
        if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            words.push(Value::Null);
        }
    } else if let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        if !choices.contains(&nothing) {
            choices.push(nothing);
        }
    } else if !has_null
        && ["$ref", "oneOf", "const"]
            .iter()
            .any(|one| schema.get(one).is_some())
    {
        let description = schema
            .as_object_mut()
            .and_then(|fields| fields.remove("description"));
        schema = json!({ "anyOf": [schema, nothing] });
        schema = described(
            schema,
            description
                .as_ref()
                .and_then(Value::as_str)
                .unwrap_or_default(),
        );
    }
    schema
}

fn without_null(schema: Value) -> Value {
    if let Some([kind, Value::String(null)]) = schema["type"].as_array().map(Vec::as_slice)
        && null == "null"
    {
        let kind = kind.clone();
        let mut schema = schema;
        schema["type"] = kind;
        return schema;
    }
    match schema["anyOf"].as_array().map(Vec::as_slice) {
        Some([only, null]) if *null == json!({ "type": "null" }) => only.clone(),
        _ => schema,
    }
}

/// Returns a reference to the schema of an object with one of these fields: each has a name, a meaning and a schema.
pub fn either<const COUNT: usize>(
    schemas: &mut Schemas,
    name: &'static str,
    fields: [(&str, &str, Value); COUNT],
) -> Value {
    let mut schema = json!({ "type": "object", "properties": {} });
    for (field, meaning, own) in fields {
        schema["properties"][field] = described(own, meaning);
    }
    schemas.named(name, name, |_| schema)
}

fn text(docs: &[&str]) -> String {
    let lines = docs.iter().map(|line| line.trim());
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// Converts a name from snake case or Pascal case.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut whole = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        whole.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        whole.push_str(letters.as_str());
    }
    whole
}

/// Converts a name from Pascal case to snake case.
pub fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Returns the schema of a field of this type, unless a rule replaces it.
pub fn of_field<T: Described + ?Sized>(schemas: &mut Schemas, rules: &[Rule]) -> Value {
    let own = rules.iter().find_map(|rule| match rule {
        Rule::Is(schema) => Some(*schema),
        _ => None,
    });
    own.unwrap_or(T::schema)(schemas)
}

/// Declares an object that weir writes, as a struct or as an enum with a tag. `as` names its schema.
///
/// The macro reads serde's attributes of fields: `rename`, `skip_serializing_if`, `flatten`.
#[macro_export]
macro_rules! written {
    (
        $(#[doc = $doc:literal])*
        $(#[derive($($derive:path),*)])?
        $(#[serde(rename_all = $case:literal)])?
        $visible:vis struct $object:ident $(<$life:lifetime>)? as $title:literal {
            $(
                $(#[doc = $field_doc:literal])*
                $(#[serde($($serde:tt)*)])?
                $field_visible:vis $field:ident: $type:ty $(= [$($rule:expr),* $(,)?])?,
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(::serde::Serialize, $($($derive),*)?)]
        $(#[serde(rename_all = $case)])?
        $visible struct $object $(<$life>)? {
            $(
                $(#[doc = $field_doc])*
                $(#[serde($($serde)*)])?
                $field_visible $field: $type,
            )*
        }

        impl $(<$life>)? $crate::schema::Described for $object $(<$life>)? {
            fn schema(schemas: &mut $crate::schema::Schemas) -> ::serde_json::Value {
                use $crate::schema::Rule::*;
                const _: $crate::schema::Rule = Required;
                let kind = $crate::schema::ObjectKind {
                    name: $title,
                    docs: &[$($doc),*],
                    of: ::std::any::type_name::<Self>(),
                    is_camel_case: matches!(concat!($($case)?), "camelCase"),
                };
                schemas.written_object(&kind, |schemas| vec![$({
                    let rules = vec![$($($rule),*)?];
                    $crate::schema::Field {
                        name: stringify!($field),
                        docs: &[$($field_doc),*],
                        serde: concat!($(stringify!($($serde)*))?),
                        schema: $crate::schema::of_field::<$type>(schemas, &rules),
                        rules,
                    }
                }),*])
            }
        }
    };
    (
        $(#[doc = $doc:literal])*
        $(#[derive($($derive:path),*)])?
        #[serde(tag = $tag:literal $(, rename_all = $case:literal)?)]
        $visible:vis enum $object:ident $(<$life:lifetime>)? as $title:literal {
            $(
                $(#[doc = $variant_doc:literal])*
                $(#[serde(rename = $word:literal)])?
                $variant:ident as $variant_title:literal {
                    $(
                        $(#[doc = $field_doc:literal])*
                        $(#[serde($($serde:tt)*)])?
                        $field:ident: $type:ty $(= [$($rule:expr),* $(,)?])?,
                    )*
                },
            )*
            $(; $(#[doc = $other_doc:literal])* $other:ident($other_type:ty),)?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(::serde::Serialize, $($($derive),*)?)]
        #[serde(tag = $tag $(, rename_all = $case)?)]
        $visible enum $object $(<$life>)? {
            $(
                $(#[doc = $variant_doc])*
                $(#[serde(rename = $word)])?
                $variant {
                    $(
                        $(#[doc = $field_doc])*
                        $(#[serde($($serde)*)])?
                        $field: $type,
                    )*
                },
            )*
            $(
                $(#[doc = $other_doc])*
                #[serde(untagged)]
                $other($other_type),
            )?
        }

        impl $(<$life>)? $crate::schema::Described for $object $(<$life>)? {
            fn schema(schemas: &mut $crate::schema::Schemas) -> ::serde_json::Value {
                use $crate::schema::Rule::*;
                const _: $crate::schema::Rule = Required;
                let of = ::std::any::type_name::<Self>();
                schemas.named($title, of, |schemas| {
                    let mut choices = Vec::new();
                    let mut mapping = ::serde_json::Map::new();
                    $({
                        let word = concat!($($word)?);
                        let word = match word.is_empty() {
                            true => $crate::schema::snake_case(stringify!($variant)),
                            false => word.to_owned(),
                        };
                        let kind = $crate::schema::ObjectKind {
                            name: $variant_title,
                            docs: &[$($variant_doc),*],
                            of: concat!(stringify!($object), "::", stringify!($variant)),
                            is_camel_case: false,
                        };
                        let choice = schemas.tagged_object(&kind, ($tag, &word), |schemas| vec![$({
                            let rules = vec![$($($rule),*)?];
                            $crate::schema::Field {
                                name: stringify!($field),
                                docs: &[$($field_doc),*],
                                serde: concat!($(stringify!($($serde)*))?),
                                schema: $crate::schema::of_field::<$type>(schemas, &rules),
                                rules,
                            }
                        }),*]);
                        mapping.insert(word, choice["$ref"].clone());
                        choices.push(choice);
                    })*
                    let others: &[&[&str]] = &[$(&[$($other_doc),*])?];
                    $crate::schema::choice(&[$($doc),*], $tag, (choices, mapping), others)
                })
            }
        }
    };
}
pub use written;

/// Returns the schema of a choice between objects, and perhaps of others.
pub fn choice(
    docs: &[&str],
    tag: &str,
    (mut choices, mapping): (Vec<Value>, Map<String, Value>),
    others: &[&[&str]],
) -> Value {
    let schema = match others {
        [] => {
            json!({ "oneOf": choices, "discriminator": { "propertyName": tag, "mapping": mapping } })
        }
        [others, ..] => {
            let other = json!({
                "type": "object", "properties": { tag: { "type": "string", "description": "The kind of the object." } }, "required": [tag],
                "additionalProperties": true,
            });
            choices.push(described(other, text(others)));
            json!({ "anyOf": choices })
        }
    };
    described(schema, text(docs))
}

/// Returns the schema of a field of weir's own: the charge of a request.
impl Described for Credits {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "number" })
    }
}

impl Described for str {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "string" })
    }
}

impl Described for String {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "string" })
    }
}

impl Described for bool {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "boolean" })
    }
}

impl Described for f64 {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "number" })
    }
}

impl Described for i64 {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "integer", "format": "int64" })
    }
}

impl Described for u32 {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "integer", "minimum": 0, "maximum": Self::MAX })
    }
}

impl Described for u64 {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "integer", "format": "int64", "minimum": 0 })
    }
}

impl Described for usize {
    fn schema(schemas: &mut Schemas) -> Value {
        u64::schema(schemas)
    }
}

/// A value that weir does not have and another server may: generators of clients know no type that has only null.
impl Described for () {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": ["object", "null"] })
    }
}

impl Described for RawValue {
    fn schema(_: &mut Schemas) -> Value {
        json!({})
    }
}

impl Described for Value {
    fn schema(_: &mut Schemas) -> Value {
        json!({})
    }
}

impl<T: Described + ?Sized> Described for &T {
    fn schema(schemas: &mut Schemas) -> Value {
        T::schema(schemas)
    }
}

impl<T: Described + ?Sized> Described for Box<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        T::schema(schemas)
    }
}

impl<T: Described> Described for Option<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        nullable(T::schema(schemas))
    }
}

impl<T: Described> Described for [T] {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "type": "array", "items": T::schema(schemas) })
    }
}

impl<T: Described> Described for Vec<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        <[T]>::schema(schemas)
    }
}

impl<T: Described, const COUNT: usize> Described for [T; COUNT] {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "type": "array", "items": T::schema(schemas), "minItems": COUNT, "maxItems": COUNT })
    }
}
