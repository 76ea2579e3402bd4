//! A request as a form (`multipart/form-data`): its fields, converted to JSON, and its images.

use bytes::Bytes;
use serde_json::{Map, Value};
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::chat::Image;

use super::ImageOperation;
use super::request::{AttachedImages, read_with};
use super::wire::MAX_IMAGES;
use crate::json::{FieldFault, is_media_type_name};
use crate::{Attachment, ImageCall};

/// The maximum parts of a form: all fields, known and unknown, and all images.
const MAX_PARTS: usize = 96;
/// The maximum bytes of a name that weir repeats in an error.
const MAX_NAME_BYTES: usize = 64;

/// Reads a form with this boundary.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the name of the field as `param` unless the body is not a form.
pub async fn read(
    body: Bytes,
    boundary: &str,
    made: ImageOperation,
) -> Result<ImageCall, ApiError> {
    let body_bytes = body.len();
    let whole = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(body)]);
    let mut form = multer::Multipart::new(whole, boundary);
    let mut fields = Map::new();
    let mut attached = AttachedImages::default();
    let mut count = 0;
    while let Some(part) = form.next_field().await.map_err(broken)? {
        count += 1;
        if count > MAX_PARTS {
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
        let said = part
            .content_type()
            .map(|said| said.essence_str().to_owned());
        match name.as_str() {
            "image" | "image[]" => {
                let data = part.bytes().await.map_err(broken)?;
                if attached.inputs.len() == MAX_IMAGES {
                    let what = format!("must not be more than {MAX_IMAGES}");
                    return Err(FieldFault::new("image", what).into());
                }
                let image = add(&mut attached, said, data, "image")?;
                attached.inputs.push(image);
            }
            "mask" => {
                let data = part.bytes().await.map_err(broken)?;
                if attached.mask.is_some() {
                    return Err(FieldFault::new("mask", "is given more than once").into());
                }
                attached.mask = Some(add(&mut attached, said, data, "mask")?);
            }
            _ => {
                let text = part.bytes().await.map_err(broken)?;
                let Ok(text) = std::str::from_utf8(&text) else {
                    return Err(FieldFault::new(&name, "must be UTF-8").into());
                };
                let value = value(&name, text);
                if fields.insert(name.clone(), value).is_some() {
                    return Err(FieldFault::new(&name, "is given more than once").into());
                }
            }
        }
    }
    // From here on, the fields are checked like a JSON body.
    let fields = Value::Object(fields).to_string();
    read_with(fields.as_bytes(), made, attached, body_bytes)
}

/// Converts a field to JSON, because a form has only texts.
fn value(name: &str, text: &str) -> Value {
    let is_other = matches!(
        name,
        "n" | "output_compression" | "partial_images" | "stream"
    );
    match is_other.then(|| serde_json::from_str(text)) {
        Some(Ok(value @ (Value::Number(_) | Value::Bool(_)))) => value,
        _ => text.into(),
    }
}

fn add(
    attached: &mut AttachedImages,
    said: Option<String>,
    data: Bytes,
    field: &str,
) -> Result<Image, ApiError> {
    if data.is_empty() {
        return Err(FieldFault::new(field, "must not be an empty file").into());
    }
    let media_type = media_type(said, &data).ok_or_else(|| {
        FieldFault::new(
            field,
            "must be an image with a content type such as image/png",
        )
    })?;
    let source = attached.attachments.add(Attachment { media_type, data });
    Ok(Image {
        source,
        detail: None,
    })
}

/// Returns the client's media type of an image, or the type by its first bytes if the client's is useless: SDKs with
/// bytes but no file name send none.
fn media_type(said: Option<String>, data: &[u8]) -> Option<String> {
    if let Some(said) = said
        && let Some(name) = said.strip_prefix("image/")
        && is_media_type_name(name)
    {
        return Some(said);
    }
    let found = match data {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => "image/webp",
        _ => return None,
    };
    Some(found.to_owned())
}

fn broken(_: multer::Error) -> ApiError {
    ApiError::invalid_request("", "The body is not a complete form (multipart/form-data).")
}
