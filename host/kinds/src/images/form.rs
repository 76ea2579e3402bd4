//! A request as a form (`multipart/form-data`): its fields, converted to JSON, and its images.

use bytes::Bytes;
use serde_json::{Map, Value};
use weir_dialects::Attachment;
use weir_dialects::form::{self, FormPart};
use weir_dialects::json::{FieldFault, is_media_type_name};
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::chat::Image;

use super::request::{AttachedImages, read_with};
use super::wire::MAX_IMAGES;
use super::{ImageCall, ImageOperation};

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
    let mut fields = Map::new();
    let mut attached = AttachedImages::default();
    for part in form::parts(body, boundary).await? {
        match part.name.as_str() {
            "image" | "image[]" => {
                if attached.inputs.len() == MAX_IMAGES {
                    let what = format!("must not be more than {MAX_IMAGES}");
                    return Err(FieldFault::new("image", what).into());
                }
                let image = add(&mut attached, part, "image")?;
                attached.inputs.push(image);
            }
            "mask" => {
                if attached.mask.is_some() {
                    return Err(FieldFault::new("mask", "is given more than once").into());
                }
                attached.mask = Some(add(&mut attached, part, "mask")?);
            }
            name => {
                let is_other = matches!(
                    name,
                    "n" | "output_compression" | "partial_images" | "stream"
                );
                let value = form::value(part.text()?, is_other);
                if fields.insert(name.to_owned(), value).is_some() {
                    return Err(FieldFault::new(name, "is given more than once").into());
                }
            }
        }
    }
    // From here on, the fields are checked like a JSON body.
    let fields = Value::Object(fields).to_string();
    read_with(fields.as_bytes(), made, attached, body_bytes)
}

fn add(attached: &mut AttachedImages, part: FormPart, field: &str) -> Result<Image, ApiError> {
    let (said, data) = (part.media_type, part.data);
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
