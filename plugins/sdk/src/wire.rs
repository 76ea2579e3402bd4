//! Helpers to write a request: JSON that passes unchanged, refusals, and the names of omitted fields.
//!
//! A request is translated into structs that borrow from it, with plain functions that may refuse,
//! and then serialized once: no text is copied but into the body that is sent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::adapter::{Attachment, Failure};
use crate::chat::ExtraField;
use crate::fields::{is_advisory, is_advisory_within};

/// JSON that arrived as text and leaves unchanged. It is parsed, so that no text can break out of its
/// place in the body.
///
/// # Errors
///
/// A refusal that names the field, if the text is not JSON.
pub fn raw<'a>(field: &str, json: &'a str) -> Result<&'a RawValue, Failure> {
    serde_json::from_str(json).map_err(|error| refuse(field, format!("{field}: {error}")))
}

/// The same for a JSON object.
///
/// # Errors
///
/// A refusal that names the field.
pub fn object<'a>(field: &str, json: &'a str) -> Result<&'a RawValue, Failure> {
    let raw = raw(field, json)?;
    if raw.get().starts_with('{') {
        Ok(raw)
    } else {
        Err(refuse(field, format!("{field}: not a JSON object")))
    }
}

/// The refusal of a field that the upstream does not support. `param` names the field.
pub fn refuse(param: &str, what: impl Into<String>) -> Failure {
    Failure::unsupported(what).with_param(param)
}

/// The media type that the client gave, or else that of the attachment.
///
/// # Errors
///
/// A refusal that names the field, for an attachment that the request does not have.
pub fn media_type<'a>(
    attachments: &'a [Attachment],
    index: u32,
    given: Option<&'a str>,
    field: &str,
) -> Result<&'a str, Failure> {
    match attachments.get(index as usize) {
        Some(attached) => Ok(given.unwrap_or(&attached.media_type)),
        None => Err(refuse(
            field,
            format!("{field}: an attachment that the request does not have"),
        )),
    }
}

/// Fields beyond those of a struct, for `#[serde(flatten)]`.
#[derive(Debug, Default)]
pub struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The extra fields of something that the client of the upstream's own dialect wrote. `at` is
    /// where they stand, `own` what the adapter writes itself.
    ///
    /// # Errors
    ///
    /// A refusal of one that is written already or is not JSON.
    pub fn read(extra: &'a [ExtraField], own: &[&str], at: &str) -> Result<Self, Failure> {
        let mut fields = Self::default();
        for (name, json) in extra {
            let field = join(at, name);
            if own.contains(&name.as_str()) {
                return Err(refuse(&field, &field));
            }
            fields.add(name, raw(&field, json)?);
        }
        Ok(fields)
    }

    /// The fields of a JSON object, but for those that the adapter writes itself.
    ///
    /// # Errors
    ///
    /// A refusal that names the field `at`, if the text is not a JSON object.
    pub fn of_object(json: &'a str, own: &[&str], at: &str) -> Result<Self, Failure> {
        let object: BTreeMap<Cow<'a, str>, &'a RawValue> =
            serde_json::from_str(json).map_err(|error| refuse(at, format!("{at}: {error}")))?;
        let fields = object.into_iter();
        Ok(Self(
            fields
                .filter(|(name, _)| !own.contains(&name.as_ref()))
                .collect(),
        ))
    }

    /// Adds one.
    pub fn add(&mut self, name: &'a str, json: &'a RawValue) {
        self.0.push((Cow::Borrowed(name), json));
    }

    /// Takes one out.
    pub fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let position = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(position).1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, json) in &self.0 {
            map.serialize_entry(name, json)?;
        }
        map.end()
    }
}

/// Leaves out the extra fields of a request, for an upstream without them. Returns their names.
///
/// # Errors
///
/// A refusal that names the first field that is not advisory.
pub fn leave_out_fields(extra: &[ExtraField]) -> Result<Vec<String>, Failure> {
    let names = extra.iter().map(|(name, _)| match is_advisory(name) {
        true => Ok(name.clone()),
        false => Err(refuse(name, name)),
    });
    names.collect()
}

/// Leaves out the extra fields of a message, a part or a tool, for an upstream without them.
///
/// # Errors
///
/// A refusal that names the first field that is not advisory.
pub fn leave_out_extra(
    extra: &[ExtraField],
    at: &str,
    ignored: &mut Ignored,
) -> Result<(), Failure> {
    for (name, _) in extra {
        if !is_advisory_within(name) {
            let field = join(at, name);
            return Err(refuse(&field, &field));
        }
        ignored.add(name);
    }
    Ok(())
}

fn join(at: &str, name: &str) -> String {
    if at.is_empty() {
        name.to_owned()
    } else {
        format!("{at}.{name}")
    }
}

/// The names of omitted fields, each once.
#[derive(Debug, Default)]
pub struct Ignored(Vec<String>);

impl Ignored {
    /// Names something.
    pub fn add(&mut self, name: &str) {
        if !self.0.iter().any(|known| known == name) {
            self.0.push(name.to_owned());
        }
    }

    /// Names something if it is there.
    pub fn add_if(&mut self, is_there: bool, name: &str) {
        if is_there {
            self.add(name);
        }
    }

    /// All of them, in the order in which they came.
    pub fn into_names(self) -> Vec<String> {
        self.0
    }
}
