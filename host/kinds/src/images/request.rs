//! The translation of an image request: checks its settings, and converts them to the plugins' vocabulary.

use serde_json::Value;
use weir_dialects::json::{
    self, FieldFault, Text, check_at_most, check_https_url, check_id, check_length, data_url, each,
    items, required,
};
use weir_dialects::openai::{MAX_MODEL_CHARS, MAX_USER_CHARS};
use weir_dialects::other::OtherFormat;
use weir_dialects::{Attachments, Dialect};
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::{Image, ImageRequest, Source};

use super::wire::{MAX_COUNT, MAX_PREVIEWS, MAX_PROMPT_CHARS, MAX_WORD_CHARS};
use super::{ImageCall, ImageOperation, NAME, wire};

/// The images of a form, besides its fields.
#[derive(Debug, Default)]
pub(super) struct AttachedImages {
    pub(super) attachments: Attachments,
    pub(super) inputs: Vec<Image>,
    pub(super) mask: Option<Image>,
}

/// Reads a JSON request.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read(body: &[u8], made: ImageOperation) -> Result<ImageCall, ApiError> {
    read_with(body, made, AttachedImages::default(), body.len())
}

/// Reads fields in JSON, with separate images. `body_bytes` is the size of the complete body.
pub(super) fn read_with(
    fields: &[u8],
    made: ImageOperation,
    attached: AttachedImages,
    body_bytes: usize,
) -> Result<ImageCall, ApiError> {
    let body = json::read(fields)?;
    Ok(image(body, made, attached, body_bytes)?)
}

fn image(
    mut body: wire::ImageRequestBody<'_>,
    made: ImageOperation,
    mut attached: AttachedImages,
    body_bytes: usize,
) -> Result<ImageCall, FieldFault> {
    let model = required(body.model.take(), "model")?.into_string();
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    let prompt = required(body.prompt.take(), "prompt")?;
    check_length(&prompt, MAX_PROMPT_CHARS, "prompt")?;
    let count = body.n.unwrap_or(1);
    if !(1..=MAX_COUNT).contains(&count) {
        return Err(FieldFault::new(
            "n",
            format!("must be from 1 to {MAX_COUNT}"),
        ));
    }
    let stream = body.stream == Some(true);
    if stream && count > 1 {
        return Err(FieldFault::new("n", "must be 1 with stream"));
    }
    read_images(&mut body, made, &mut attached)?;
    let (size, quality) = (body.size.take(), body.quality.take());
    let background = body.background.take();
    for (word, field) in [
        (&size, "size"),
        (&quality, "quality"),
        (&background, "background"),
    ] {
        if let Some(word) = word {
            check_length(word, MAX_WORD_CHARS, field)?;
        }
    }
    let media_type = media_type(body.output_format.as_ref())?;
    let user = body.user.take();
    if let Some(user) = &user {
        check_at_most(user, MAX_USER_CHARS, "user")?;
    }
    let extra = extra(body, user.as_deref(), stream)?;
    Ok(ImageCall {
        request: ImageRequest {
            model,
            prompt,
            inputs: attached.inputs,
            mask: attached.mask,
            count,
            size,
            quality,
            background,
            media_type,
            extra,
            stream,
        },
        attachments: attached.attachments.into_vec(),
        body_bytes,
        client: Client {
            dialect: NAME.into(),
            headers: Vec::new(),
            end_user: user,
        },
        dialect: Dialect::Other(OtherFormat::from(made)),
    })
}

/// Returns the images of the fields, besides those of a form.
fn read_images(
    body: &mut wire::ImageRequestBody<'_>,
    made: ImageOperation,
    attached: &mut AttachedImages,
) -> Result<(), FieldFault> {
    let images = items(body.images.take());
    let mask = body.mask.take();
    let attachments = &mut attached.attachments;
    let images = each(images, "images", |image| reference(image, attachments))?;
    attached.inputs.extend(images);
    if let Some(mask) = mask {
        let mask = reference(mask, attachments).map_err(|fault| fault.within("mask"))?;
        attached.mask = Some(mask);
    }
    match made {
        ImageOperation::Generation if !attached.inputs.is_empty() => Err(FieldFault::new(
            "images",
            "is not allowed here: use POST /v1/images/edits to edit images",
        )),
        ImageOperation::Generation if attached.mask.is_some() => Err(FieldFault::new(
            "mask",
            "is not allowed here: use POST /v1/images/edits",
        )),
        ImageOperation::Edit if attached.inputs.is_empty() => {
            Err(FieldFault::new("image", "is required"))
        }
        ImageOperation::Edit if attached.inputs.len() > wire::MAX_IMAGES => Err(FieldFault::new(
            "image",
            format!("must not be more than {}", wire::MAX_IMAGES),
        )),
        _ => Ok(()),
    }
}

fn reference(
    reference: wire::ImageUrlReference<'_>,
    attachments: &mut Attachments,
) -> Result<Image, FieldFault> {
    let source = match (reference.image_url, reference.file_id) {
        (Some(_), Some(_)) => {
            return Err(FieldFault::new(
                "file_id",
                "must not be given beside image_url",
            ));
        }
        (None, None) => return Err(FieldFault::new("image_url", "is required")),
        (None, Some(id)) => {
            check_id(&id, "file_id")?;
            Source::Id(id)
        }
        (Some(url), None) => match data_url(url.as_str(), "image_url")? {
            Some(attachment) if attachment.media_type.starts_with("image/") => {
                attachments.add(attachment)
            }
            Some(_) => {
                let what = "must be of a media type such as image/png";
                return Err(FieldFault::new("image_url", what));
            }
            None => {
                let otherwise = "must be an https URL or a base64 data URL";
                check_https_url(url.as_str(), "image_url", otherwise)?;
                Source::Url(url.into_string())
            }
        },
    };
    Ok(Image {
        source,
        detail: None,
    })
}

fn media_type(format: Option<&Text<'_>>) -> Result<Option<String>, FieldFault> {
    match format.map(Text::as_str) {
        None => Ok(None),
        Some(format @ ("png" | "jpeg" | "webp")) => Ok(Some(format!("image/{format}"))),
        Some(_) => Err(FieldFault::new(
            "output_format",
            "must be one of png, jpeg, webp",
        )),
    }
}

/// Returns the fields for the adapter, checked if they affect the price or their values are known.
fn extra(
    body: wire::ImageRequestBody<'_>,
    user: Option<&str>,
    stream: bool,
) -> Result<Vec<(String, String)>, FieldFault> {
    let mut fields = body.others.into_fields();
    let mut add = |name: &str, value: Value| fields.push((name.to_owned(), value.to_string()));
    if let Some(percent) = body.output_compression {
        if percent > 100 {
            return Err(FieldFault::new(
                "output_compression",
                "must be from 0 to 100",
            ));
        }
        add("output_compression", percent.into());
    }
    match body.partial_images {
        None | Some(0) => {}
        Some(_) if !stream => return Err(FieldFault::new("partial_images", "needs stream")),
        Some(previews @ 1..=MAX_PREVIEWS) => add("partial_images", previews.into()),
        Some(_) => {
            let what = format!("must be from 0 to {MAX_PREVIEWS}");
            return Err(FieldFault::new("partial_images", what));
        }
    }
    let words: [(_, _, &[&str]); 4] = [
        (
            "response_format",
            body.response_format,
            &["url", "b64_json"],
        ),
        ("moderation", body.moderation, &["auto", "low"]),
        ("style", body.style, &["vivid", "natural"]),
        // With `high`, the upstream charges input images like generated ones, which the price per image does not cover.
        ("input_fidelity", body.input_fidelity, &["low"]),
    ];
    for (name, word, known) in words {
        let Some(word) = word else { continue };
        if !known.contains(&word.as_str()) {
            return Err(FieldFault::new(
                name,
                format!("must be {}", known.join(" or ")),
            ));
        }
        add(name, word.as_str().into());
    }
    if let Some(user) = user {
        add("user", user.into());
    }
    Ok(fields)
}
