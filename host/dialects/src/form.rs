//! The parts of a form (`multipart/form-data`).

use bytes::Bytes;
use serde_json::{Map, Value, json};
use weir_errors::ApiError;

use crate::json::FieldFault;

/// The maximum parts of a form: all fields, known and unknown, and all files.
const MAX_PARTS: usize = 96;
/// The maximum bytes of a name that weir repeats in an error.
const MAX_NAME_BYTES: usize = 64;

/// A part of a form.
pub struct FormPart {
    /// The name of its field.
    pub name: String,
    /// The client's name of a file.
    pub file_name: Option<String>,
    /// The client's media type.
    pub media_type: Option<String>,
    /// The content.
    pub data: Bytes,
}

impl FormPart {
    /// Returns the text of a field.
    pub fn text(&self) -> Result<&str, FieldFault> {
        let text = std::str::from_utf8(&self.data);
        text.map_err(|_| FieldFault::new(&self.name, "must be UTF-8"))
    }
}

/// Reads a form with this boundary.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, if the body is not a form.
pub async fn parts(body: Bytes, boundary: &str) -> Result<Vec<FormPart>, ApiError> {
    let whole = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(body)]);
    let mut form = multer::Multipart::new(whole, boundary);
    let mut parts = Vec::new();
    while let Some(part) = form.next_field().await.map_err(broken)? {
        if parts.len() == MAX_PARTS {
            let message = format!("The form must not have more than {MAX_PARTS} parts.");
            return Err(ApiError::invalid_request("", message));
        }
        let name = part.name().unwrap_or_default().to_owned();
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            let message = format!(
                "Each part of the form must have a name of at most {MAX_NAME_BYTES} bytes."
            );
            return Err(ApiError::invalid_request("", message));
        }
        let media_type = part
            .content_type()
            .map(|said| said.essence_str().to_owned());
        parts.push(FormPart {
            name,
            file_name: part.file_name().map(str::to_owned),
            media_type,
            data: part.bytes().await.map_err(broken)?,
        });
    }
    Ok(parts)
}

/// Converts the text of a field to JSON, because a form has only texts: a number or a boolean if the field `is_other` than
/// a text.
pub fn value(text: &str, is_other: bool) -> Value {
    match is_other.then(|| serde_json::from_str(text)) {
        Some(Ok(value @ (Value::Number(_) | Value::Bool(_)))) => value,
        _ => text.into(),
    }
}

fn broken(_: multer::Error) -> ApiError {
    ApiError::invalid_request("", "The body is not a complete form (multipart/form-data).")
}

/// Returns an object's schema for a form, which has no null.
pub fn as_form(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let fields = schema["properties"].as_object_mut();
    for field in fields.into_iter().flat_map(Map::values_mut) {
        if let Some([kind, _]) = field["type"].as_array().map(Vec::as_slice) {
            field["type"] = kind.clone();
        }
        if let Some(words) = field.get_mut("enum").and_then(Value::as_array_mut) {
            words.retain(|word| !word.is_null());
        }
    }
    schema
}

/// Returns the schema of a file in a form.
pub fn file_schema(description: &str) -> Value {
    json!({ "type": "string", "format": "binary", "description": description })
}
