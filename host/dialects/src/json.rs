//! Parsing of untrusted JSON: the shared base of all dialects.
//!
//! A dialect declares its objects with [`object!`] and reads a body with [`read`]. Parsing checks types, unknown fields
//! and repeated fields. The dialect checks values with the helpers at the end, which return [`FieldFault`]s.
//!
//! **Invariant:** an error names the field and never repeats a value, which may be part of a prompt. **Invariant:**
//! null counts as absent everywhere, and a repeated field is refused. **Invariant:** a field whose name differs only in
//! case from one of weir's or an adapter's fields is refused. Servers in Go ignore case and would use its value instead
//! of the one that weir has priced. The rule does not apply within free-form maps, schemas and arguments.
//! **Invariant:** a value that weir passes on unparsed nests at most [`MAX_RAW_DEPTH`] levels deep, so that readers can
//! recurse. **Invariant:** each list, the number of unknown fields and the length of their names have a limit; all of
//! them together have one, too ([`MAX_ITEMS`]): an empty item takes three bytes in a body and hundreds in memory, here
//! and in a guest.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_path_to_error::Segment;
use weir_errors::ApiError;

use super::Attachment;
use crate::schema::{Described, FurtherFields, KnownFields, Schemas};

/// The maximum messages: an empty one takes 30 bytes in the body and ten times that in memory.
pub const MAX_MESSAGES: usize = 8_192;
/// The maximum parts, or tool calls, of a message.
pub const MAX_PARTS: usize = 1_024;
/// The maximum tools; OpenAI accepts 128.
pub const MAX_TOOLS: usize = 512;
/// The maximum stop sequences; OpenAI accepts 4, others more.
pub const MAX_STOPS: usize = 16;
/// The maximum unknown fields of the body, or of an upstream's own tool.
pub const MAX_EXTRA: usize = 64;
/// The maximum unknown fields of a message, a part or a function, which can be numerous.
pub const MAX_EXTRA_WITHIN: usize = 16;

/// The maximum bytes of a field name that weir repeats in an error or passes on.
const MAX_NAME_BYTES: usize = 64;
/// The maximum depth of a value that weir passes on as JSON. Adapters put it a few levels deep into their own body,
/// which must stay within the 128 levels that serde_json reads, here and there.
const MAX_RAW_DEPTH: usize = 100;
const MAX_URL_BYTES: usize = 8_192;
/// serde_json's message for a number beyond all floats, which it reports as a syntax error.
const OUT_OF_RANGE: &str = "number out of range";
/// Fields that adapters write, price, or refuse without the operator's permission, even if the client's dialect does
/// not declare them.
pub const ADAPTERS_OWN: [&str; 15] = [
    "fallbacks",
    "inference_geo",
    "input",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "prediction",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "speed",
    "user",
    "web_search_options",
];
/// The maximum characters of an id from a client, e.g. of a tool call; vendors' ids have some dozen characters.
pub const MAX_ID_CHARS: usize = 512;
/// The maximum items of all lists of a body together, unknown fields included. Long conversations have some thousands.
const MAX_ITEMS: usize = 32_768;

thread_local! {
    /// The rest of [`MAX_ITEMS`] for the current body: a `Deserialize` has no other way to receive it.
    static ITEMS_LEFT: Cell<usize> = const { Cell::new(MAX_ITEMS) };
}

/// Encoders disagree on padding; both forms encode the same bytes.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Declares an object of a dialect, with the JSON names of each field beside the Rust one, for its reader and for its
/// schema ([`crate::schema`]), which `as` names. Its doc comments are for users of the API. `others` handles unknown
/// fields: [`RefusedFields`], [`ExtraFields`] or [`IgnoredField`], perhaps with the fields that providers know.
///
/// serde's derive does not suffice for two rules: null counts as absent even in an unknown field, and an error about a
/// repeated field must arise while its value is read, because only then its path is known.
#[macro_export]
macro_rules! object {
    (
        $(#[doc = $doc:literal])*
        struct $object:ident<$de:lifetime> as $title:literal {
            $(
                $(#[doc = $field_doc:literal])*
                $($name:literal)|+: $field:ident: $type:ty $(= [$($rule:expr),* $(,)?])?,
            )*
            others: $others:ty $(= $known:expr)?,
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Default)]
        pub(super) struct $object<$de> {
            $($(#[doc = $field_doc])* pub(super) $field: Option<$type>,)*
            pub(super) others: $others,
            lifetime: ::std::marker::PhantomData<&$de ()>,
        }

        impl<$de> $crate::schema::Described for $object<$de> {
            fn schema(schemas: &mut $crate::schema::Schemas) -> ::serde_json::Value {
                use $crate::schema::Rule::*;
                const _: $crate::schema::Rule = Required;
                let kind = $crate::schema::ObjectKind {
                    name: $title,
                    docs: &[$($doc),*],
                    of: ::std::any::type_name::<Self>(),
                    is_camel_case: false,
                };
                let known: &[$crate::schema::KnownFields] = &[$($known)?];
                let others = <$others>::described(known.first().copied().unwrap_or_default());
                schemas.read_object(&kind, &others, |schemas| vec![$({
                    let rules = vec![$($($rule),*)?];
                    $crate::schema::Field {
                        // Further names are other spellings.
                        name: [$($name),+][0],
                        docs: &[$($field_doc),*],
                        serde: "",
                        schema: $crate::schema::of_field::<$type>(schemas, &rules),
                        rules,
                    }
                }),*])
            }
        }

        impl<$de> ::serde::Deserialize<$de> for $object<$de> {
            fn deserialize<D: ::serde::Deserializer<$de>>(deserializer: D) -> Result<Self, D::Error> {
                use $crate::json::{RepeatedField, Text};

                struct FieldsVisitor;

                impl<$de> ::serde::de::Visitor<$de> for FieldsVisitor {
                    type Value = $object<$de>;

                    fn expecting(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        formatter.write_str("an object")
                    }

                    fn visit_map<A: ::serde::de::MapAccess<$de>>(
                        self,
                        mut map: A,
                    ) -> Result<Self::Value, A::Error> {
                        let mut object = $object::default();
                        $(let mut $field = false;)*
                        while let Some(name) = map.next_key::<Text<$de>>()? {
                            match name.as_str() {
                                $($($name)|+ => {
                                    if std::mem::replace(&mut $field, true) {
                                        map.next_value::<RepeatedField>()?;
                                    }
                                    object.$field = map.next_value()?;
                                })*
                                _ => object.others.read(name, &[$($($name),+),*], &mut map)?,
                            }
                        }
                        Ok(object)
                    }
                }

                deserializer.deserialize_map(FieldsVisitor)
            }
        }
    };
}
pub use object;

/// Reads a body. After an error, it reads the body again to find the path, because the first read is faster without
/// tracking it.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read<'de, Body: Deserialize<'de>>(body: &'de [u8]) -> Result<Body, ApiError> {
    ITEMS_LEFT.set(MAX_ITEMS);
    serde_json::from_slice(body).map_err(|error| explain::<Body>(body, &error))
}

/// A string, borrowed from the body unless it holds escapes.
pub struct Text<'de>(Cow<'de, str>);

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0.into_owned()
    }
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

impl Described for Text<'_> {
    fn schema(schemas: &mut Schemas) -> serde_json::Value {
        str::schema(schemas)
    }
}

/// An array of at most `MAX` items, so that a body of empty items cannot take many times its size in memory.
pub struct BoundedList<T, const MAX: usize>(pub Vec<T>);

impl<T, const MAX: usize> BoundedList<T, MAX> {
    /// Reads an array for visitors that accept other values, too.
    pub fn read<'de, A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error>
    where
        T: Deserialize<'de>,
    {
        let mut items = Vec::new();
        while let Some(item) = array.next_element()? {
            if items.len() == MAX {
                return Err(de::Error::custom(format_args!(
                    "must not have more than {MAX} items"
                )));
            }
            count_item()?;
            items.push(item);
        }
        Ok(Self(items))
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
            type Value = BoundedList<T, MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                BoundedList::read(items)
            }
        }

        deserializer.deserialize_seq(Items(PhantomData))
    }
}

impl<T: Described, const MAX: usize> Described for BoundedList<T, MAX> {
    fn schema(schemas: &mut Schemas) -> serde_json::Value {
        let mut schema = <[T]>::schema(schemas);
        schema["maxItems"] = MAX.into();
        schema
    }
}

/// Counts an item of the body.
pub fn count_item<E: de::Error>() -> Result<(), E> {
    let left = ITEMS_LEFT.get().checked_sub(1).ok_or_else(|| {
        E::custom(format_args!(
            "must have fewer items: all lists of a request may have {MAX_ITEMS} together"
        ))
    })?;
    ITEMS_LEFT.set(left);
    Ok(())
}

/// The items of a list; empty if it is absent.
pub fn items<T, const MAX: usize>(list: Option<BoundedList<T, MAX>>) -> Vec<T> {
    list.map(|list| list.0).unwrap_or_default()
}

/// Plain text, or a list.
pub enum TextOr<T, const MAX: usize> {
    Text(String),
    List(BoundedList<T, MAX>),
}

/// The items of such a list.
pub trait ListItem {
    /// The plural in a fault.
    const PLURAL: &'static str;
}

impl<'de, T: Deserialize<'de> + ListItem, const MAX: usize> Deserialize<'de> for TextOr<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrVisitor<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + ListItem, const MAX: usize> Visitor<'de> for TextOrVisitor<T, MAX> {
            type Value = TextOr<T, MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a string or an array of {}", T::PLURAL)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                BoundedList::read(items).map(TextOr::List)
            }
        }

        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

impl<T: Described, const MAX: usize> Described for TextOr<T, MAX> {
    fn schema(schemas: &mut Schemas) -> serde_json::Value {
        serde_json::json!({ "anyOf": [str::schema(schemas), BoundedList::<T, MAX>::schema(schemas)] })
    }
}

/// JSON that is passed on as it was written.
#[derive(Clone, Copy)]
pub struct Raw<'de>(pub &'de str);

impl<'de> Deserialize<'de> for Raw<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?.get();
        if nests_deeper_than(json, MAX_RAW_DEPTH) {
            return Err(de::Error::custom(format_args!(
                "must not nest deeper than {MAX_RAW_DEPTH} levels"
            )));
        }
        Ok(Self(json))
    }
}

impl Described for Raw<'_> {
    fn schema(_: &mut Schemas) -> serde_json::Value {
        serde_json::json!({})
    }
}

/// A field that is accepted without an effect; as `others`, it accepts all unknown fields.
#[derive(Default)]
pub struct IgnoredField;

impl IgnoredField {
    pub fn read<'de, A: MapAccess<'de>>(
        &self,
        _: Text<'de>,
        _: &[&'static str],
        map: &mut A,
    ) -> Result<(), A::Error> {
        map.next_value::<Self>().map(drop)
    }

    pub fn described(known: KnownFields) -> FurtherFields {
        FurtherFields::Free(known)
    }
}

impl Described for IgnoredField {
    fn schema(_: &mut Schemas) -> serde_json::Value {
        serde_json::json!({})
    }
}

impl<'de> Deserialize<'de> for IgnoredField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// A field that is refused by name; in an `Option`, null passes.
pub enum UnsupportedField {}

impl<'de> Deserialize<'de> for UnsupportedField {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom("is not supported"))
    }
}

/// Null marks a field that the schema does not have.
impl Described for UnsupportedField {
    fn schema(_: &mut Schemas) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// The value type of a repeated field, which always fails.
pub enum RepeatedField {}

impl<'de> Deserialize<'de> for RepeatedField {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom("is given more than once"))
    }
}

/// The unknown fields of an object without free fields: each is refused by name.
#[derive(Default)]
pub struct RefusedFields;

impl RefusedFields {
    pub fn read<'de, A: MapAccess<'de>>(
        &self,
        name: Text<'de>,
        own: &[&'static str],
        map: &mut A,
    ) -> Result<(), A::Error> {
        refuse_other_case(name.as_str(), own, map)?;
        map.next_value::<Option<UnsupportedField>>().map(drop)
    }

    pub fn described(_: KnownFields) -> FurtherFields {
        FurtherFields::Refused
    }
}

/// The unknown fields of an object, at most `MAX`, which the adapter handles.
#[derive(Default)]
pub struct ExtraFields<'de, const MAX: usize>(pub Vec<(Text<'de>, Raw<'de>)>);

impl<'de, const MAX: usize> ExtraFields<'de, MAX> {
    pub fn read<A: MapAccess<'de>>(
        &mut self,
        name: Text<'de>,
        own: &[&'static str],
        map: &mut A,
    ) -> Result<(), A::Error> {
        refuse_other_case(name.as_str(), own, map)?;
        if self
            .0
            .iter()
            .any(|(other, _)| other.as_str() == name.as_str())
        {
            map.next_value::<RepeatedField>()?;
        }
        let Some(value) = map.next_value()? else {
            return Ok(());
        };
        if self.0.len() == MAX || name.as_str().len() > MAX_NAME_BYTES {
            return Err(de::Error::custom(format_args!(
                "must have at most {MAX} undocumented fields, with names of at most {MAX_NAME_BYTES} bytes"
            )));
        }
        count_item()?;
        self.0.push((name, value));
        Ok(())
    }

    pub fn described(known: KnownFields) -> FurtherFields {
        FurtherFields::Free(known)
    }

    /// The fields in the plugins' vocabulary.
    pub fn into_fields(self) -> Vec<(String, String)> {
        self.0
            .into_iter()
            .map(|(name, value)| (name.into_string(), value.0.to_owned()))
            .collect()
    }
}

/// Refuses an unknown field whose name differs only in case from a field of the object or of [`ADAPTERS_OWN`].
fn refuse_other_case<'de, A: MapAccess<'de>>(
    name: &str,
    own: &[&'static str],
    map: &mut A,
) -> Result<(), A::Error> {
    // Only a body has a field `model`.
    let of_adapters: &[&'static str] = match own.contains(&"model") {
        true => &ADAPTERS_OWN,
        false => &[],
    };
    let mut all = own.iter().chain(of_adapters);
    let is_same =
        |own: &&&str| **own != name && name.chars().map(folded).eq(own.chars().map(folded));
    match all.find(is_same) {
        Some(own) => map.next_value_seed(MisspeltField(own)),
        None => Ok(()),
    }
}

/// Folds a character like Go's `encoding/json`: by Unicode's simple case folding, which maps two characters beyond
/// ASCII to ASCII letters (go.dev/src/encoding/json/fold.go, Go 1.21).
pub fn folded(character: char) -> char {
    match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    }
}

/// The value type of a misspelt field: its error gives the correct spelling.
struct MisspeltField(&'static str);

impl<'de> DeserializeSeed<'de> for MisspeltField {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, _: D) -> Result<(), D::Error> {
        Err(de::Error::custom(format_args!(
            "must be written {}",
            self.0
        )))
    }
}

/// Parses a raw value.
pub fn reread<'de, T: Deserialize<'de>>(raw: Raw<'de>) -> Result<T, FieldFault> {
    let json = raw.0.as_bytes();
    serde_json::from_slice(json).map_err(|error| fault::<T>(json, &said(&error).0))
}

/// Returns a JSON object with fields that are JSON already.
pub fn object_of(fields: Vec<(String, String)>) -> String {
    let mut json = String::from("{");
    for (name, value) in fields {
        if json.len() > 1 {
            json.push(',');
        }
        json.push_str(&serde_json::Value::from(name).to_string());
        json.push(':');
        json.push_str(&value);
    }
    json.push('}');
    json
}

/// The problem of a field, with its path relative to the checked object.
#[derive(Debug)]
pub struct FieldFault {
    path: String,
    predicate: Cow<'static, str>,
}

impl FieldFault {
    /// `predicate` completes a sentence whose subject is the field, e.g. `is required`.
    pub fn new(field: &str, predicate: impl Into<Cow<'static, str>>) -> Self {
        Self {
            path: field.to_owned(),
            predicate: predicate.into(),
        }
    }

    /// Returns the fault with a path relative to the enclosing object.
    pub fn within(mut self, field: &str) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') {
            ""
        } else {
            "."
        };
        self.path = format!("{field}{separator}{}", self.path);
        self
    }

    /// Returns the fault with a path relative to the enclosing array.
    pub fn at(self, index: usize) -> Self {
        self.within(&format!("[{index}]"))
    }
}

impl From<FieldFault> for ApiError {
    fn from(fault: FieldFault) -> Self {
        let subject = if fault.path.is_empty() {
            "The body"
        } else {
            &fault.path
        };
        let message = format!("{subject} {}.", fault.predicate);
        Self::invalid_request(fault.path, message)
    }
}

/// Translates every item of the array `field`.
pub fn each<Wire, Translated>(
    items: Vec<Wire>,
    field: &str,
    mut translate: impl FnMut(Wire) -> Result<Translated, FieldFault>,
) -> Result<Vec<Translated>, FieldFault> {
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| translate(item).map_err(|fault| fault.at(index).within(field)))
        .collect()
}

/// Returns the value, which the client must send.
pub fn required<T>(value: Option<T>, field: &str) -> Result<T, FieldFault> {
    value.ok_or_else(|| FieldFault::new(field, "is required"))
}

/// Checks that a number lies within inclusive bounds.
pub fn between(
    value: Option<f64>,
    low: i32,
    high: i32,
    field: &str,
) -> Result<Option<f64>, FieldFault> {
    match value {
        Some(number) if !(f64::from(low)..=f64::from(high)).contains(&number) => Err(
            FieldFault::new(field, format!("must be from {low} to {high}")),
        ),
        value => Ok(value),
    }
}

pub fn check_not_empty(text: &str, field: &str) -> Result<(), FieldFault> {
    if text.is_empty() {
        return Err(FieldFault::new(field, "must not be empty"));
    }
    Ok(())
}

/// Checks that a text has at least one character, and at most a number of them.
pub fn check_length(text: &str, max_chars: usize, field: &str) -> Result<(), FieldFault> {
    if text.is_empty() || text.chars().count() > max_chars {
        return Err(FieldFault::new(
            field,
            format!("must have 1 to {max_chars} characters"),
        ));
    }
    Ok(())
}

/// Checks that a text, possibly empty, has at most a number of characters.
pub fn check_at_most(text: &str, max_chars: usize, field: &str) -> Result<(), FieldFault> {
    // The byte length is an upper bound, and few texts are near their limit.
    if text.len() > max_chars && text.chars().count() > max_chars {
        return Err(FieldFault::new(
            field,
            format!("must have at most {max_chars} characters"),
        ));
    }
    Ok(())
}

/// Checks that an id is not empty and not too long.
pub fn check_id(id: &str, field: &str) -> Result<(), FieldFault> {
    check_not_empty(id, field)?;
    check_at_most(id, MAX_ID_CHARS, field)
}

/// Checks that valid JSON, which begins with its value, is an object.
pub fn check_is_object(json: &str, field: &str) -> Result<(), FieldFault> {
    if !json.starts_with('{') {
        return Err(FieldFault::new(field, "must be an object"));
    }
    Ok(())
}

/// Returns a dialect's name of a field; `names` has pairs of the name in Chat Completions and the dialect's name.
pub fn renamed<'name>(name: &'name str, names: &[(&str, &'static str)]) -> Cow<'name, str> {
    for (known, own) in names {
        match name.strip_prefix(known) {
            // The position in the dialect's list is unknown.
            Some(rest) if rest.is_empty() || rest.starts_with('[') => return (*own).into(),
            Some(rest) if rest.starts_with('.') => return format!("{own}{rest}").into(),
            _ => {}
        }
    }
    name.into()
}

/// Checks that no field of another `type` is set. `what` names the object in errors, e.g. `a part`.
pub fn check_belongs<const COUNT: usize>(
    given: [(&str, bool); COUNT],
    kind: &str,
    what: &str,
) -> Result<(), FieldFault> {
    match given
        .into_iter()
        .find(|(name, given)| *given && *name != kind)
    {
        Some((name, _)) => Err(FieldFault::new(
            name,
            format!("does not belong to {what} of this type"),
        )),
        None => Ok(()),
    }
}

/// Checks a URL for an upstream to fetch. `otherwise` is the error for a URL without `https`.
pub fn check_https_url(url: &str, field: &str, otherwise: &'static str) -> Result<(), FieldFault> {
    let host = strip_prefix_ignoring_case(url, "https://")
        .ok_or_else(|| FieldFault::new(field, otherwise))?;
    let named = host
        .bytes()
        .next()
        .is_some_and(|byte| !matches!(byte, b'/' | b'?' | b'#'));
    if !named
        || url.len() > MAX_URL_BYTES
        || url
            .chars()
            .any(|char| char.is_whitespace() || char.is_control())
    {
        return Err(FieldFault::new(
            field,
            format!("must be a valid URL of at most {MAX_URL_BYTES} bytes"),
        ));
    }
    Ok(())
}

/// Returns the file in `data:<media type>[;parameter…];base64,<bytes>`; `None` for another kind of URL.
pub fn data_url(url: &str, field: &str) -> Result<Option<Attachment>, FieldFault> {
    let Some(rest) = strip_prefix_ignoring_case(url, "data:") else {
        return Ok(None);
    };
    let malformed = || FieldFault::new(field, "must have the form data:<media type>;base64,<data>");
    let (head, data) = rest.split_once(',').ok_or_else(malformed)?;
    let (head, encoding) = head.rsplit_once(';').ok_or_else(malformed)?;
    if !encoding.eq_ignore_ascii_case("base64") {
        return Err(malformed());
    }
    let media_type = head
        .split(';')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let (kind, subtype) = media_type.split_once('/').ok_or_else(malformed)?;
    if !is_media_type_name(kind) || !is_media_type_name(subtype) {
        return Err(malformed());
    }
    Ok(Some(Attachment {
        data: base64_data(data, field)?,
        media_type,
    }))
}

/// Whether a text is valid on one side of a media type's slash (RFC 6838 §4.2).
pub fn is_media_type_name(text: &str) -> bool {
    (1..=127).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
}

/// Decodes a file in base64.
pub fn base64_data(data: &str, field: &str) -> Result<Bytes, FieldFault> {
    let data = BASE64
        .decode(data)
        .map_err(|_| FieldFault::new(field, "must hold valid base64"))?;
    if data.is_empty() {
        return Err(FieldFault::new(field, "must not hold an empty file"));
    }
    Ok(data.into())
}

/// Returns a guest's object in a form that is valid in a response: on one line, since an empty line ends a stream's
/// event, and no deeper than clients may send back. Returns `None` for anything else.
pub fn guests_object(json: &str) -> Option<Box<RawValue>> {
    // In JSON, line breaks occur only between tokens, and a space can replace each.
    let json = RawValue::from_string(json.replace(['\n', '\r'], " ")).ok()?;
    let is_fine = json.get().starts_with('{') && !nests_deeper_than(json.get(), MAX_RAW_DEPTH);
    is_fine.then_some(json)
}

/// Returns the objects of a guest's list, in a form that is valid in a response. Other items are left out.
pub fn guests_objects(json: &str) -> Vec<Box<RawValue>> {
    let objects: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
    let objects = objects.into_iter();
    objects
        .filter_map(|json| guests_object(json.get()))
        .collect()
}

fn strip_prefix_ignoring_case<'text>(text: &'text str, prefix: &str) -> Option<&'text str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| &text[prefix.len()..])
}

/// serde_json skips a raw value without counting its depth, so a later parser would overflow.
fn nests_deeper_than(json: &str, limit: usize) -> bool {
    let json = json.as_bytes();
    // Few values have that many brackets, and a long text costs little.
    if memchr::memchr2_iter(b'[', b'{', json).nth(limit).is_none() {
        return false;
    }
    let (mut depth, mut at) = (0, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b']' | b'}' => depth -= 1,
            b'"' => at = end_of_string(json, at),
            _ => {}
        }
    }
    false
}

/// Returns the position behind the string whose content begins here.
fn end_of_string(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = json
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += found + 1;
        match json[at - 1] {
            b'"' => return at,
            // The escaped character may be a quote.
            _ => at += 1,
        }
    }
    json.len()
}

fn explain<'de, Body: Deserialize<'de>>(body: &'de [u8], error: &serde_json::Error) -> ApiError {
    let (text, position) = said(error);
    if is_of_syntax(error, &text) {
        let message = format!("The body is not valid JSON: {text}{position}.");
        return ApiError::invalid_request("", message);
    }
    fault::<Body>(body, &text).into()
}

/// Splits an error into its message and its position.
fn said(error: &serde_json::Error) -> (String, String) {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&position).unwrap_or(&text).to_owned();
    (text, position)
}

fn is_of_syntax(error: &serde_json::Error, text: &str) -> bool {
    error.classify() != Category::Data && text != OUT_OF_RANGE
}

/// Returns the fault for an error message.
fn fault<'de, T: Deserialize<'de>>(json: &'de [u8], text: &str) -> FieldFault {
    let predicate = if text == OUT_OF_RANGE {
        "is a number out of range".to_owned()
    } else {
        predicate(text)
    };
    FieldFault {
        path: locate::<T>(json),
        predicate: predicate.into(),
    }
}

/// Rewrites serde's message, because it quotes the value, which may be part of a prompt.
fn predicate(message: &str) -> String {
    if message.starts_with("must ") || message.starts_with("is ") {
        return message.to_owned();
    }
    // The expected part is weir's or serde's own text; the value comes before it.
    let expected = message
        .rsplit_once(", expected ")
        .map(|(_, expected)| match expected {
            "u32" => "an integer from 0 to 4294967295",
            "i64" => "a signed 64-bit integer",
            "f64" => "a number",
            other => other,
        });
    let found = message.strip_prefix("invalid type: ").and_then(|found| {
        [
            ("string", "a string"),
            ("integer", "an integer"),
            ("floating point", "a fraction"),
            ("boolean", "a boolean"),
            ("map", "an object"),
            ("sequence", "an array"),
            ("null", "null"),
        ]
        .into_iter()
        .find_map(|(kind, words)| found.starts_with(kind).then_some(words))
    });
    match (expected, found) {
        (Some(expected), Some(found)) => format!("must be {expected}, not {found}"),
        (Some(expected), None) => format!("must be {expected}"),
        (None, _) => "is not valid".to_owned(),
    }
}

/// Returns the path at which reading the body fails, e.g. `messages[0].content[1].image_url.url`.
fn locate<'de, Body: Deserialize<'de>>(body: &'de [u8]) -> String {
    ITEMS_LEFT.set(MAX_ITEMS);
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let Err(error) = serde_path_to_error::deserialize::<_, Body>(&mut deserializer) else {
        return String::new();
    };
    let mut path = String::new();
    for segment in error.path() {
        match segment {
            Segment::Seq { index } => path.push_str(&format!("[{index}]")),
            Segment::Map { key } => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(presentable(key));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    path
}

/// Returns a client's field name in a form for errors.
pub fn presentable(name: &str) -> &str {
    let plain = name.bytes().all(|byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':' | b'$')
    });
    if plain && (1..=MAX_NAME_BYTES).contains(&name.len()) {
        name
    } else {
        "…"
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_guests_object_is_one_line_of_bounded_depth() {
        let object = |json: &str| guests_object(json).map(|json| json.get().to_owned());
        assert_eq!(
            object("{\n \"a\": \"\\n\",\r\n\t\"b\": 1.0e2}\n").unwrap(),
            "{  \"a\": \"\\n\",  \t\"b\": 1.0e2}"
        );
        for wrong in ["", "[]", "1", "{", "{} {}", "{\"a\":}", "\"{}\""] {
            assert_eq!(object(wrong), None, "{wrong}");
        }
        let nested =
            |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(object(&nested(99)).is_some());
        assert!(object(&nested(100)).is_none());
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        let nested = |depth: usize, inner: &str| {
            format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth))
        };
        let flat = format!("[{}[]]", "[],{},".repeat(200));
        let brackets = format!("\"{}\"", "[{".repeat(200));
        for (json, is_deeper) in [
            (nested(100, ""), false),
            (nested(101, ""), true),
            (flat, false),
            (brackets.clone(), false),
            (nested(100, &brackets), false),
            (nested(100, r#""\"[", {}"#), true),
            (nested(100, r#""\\", {}"#), true),
            (nested(100, r#""\\\"", 1"#), false),
        ] {
            assert_eq!(nests_deeper_than(&json, 100), is_deeper, "{json}");
        }
    }
}
