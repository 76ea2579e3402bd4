//! A request for images in this dialect.
//!
//! Models support different fields, and report unsupported ones themselves; this module checks only fields that would
//! change the form of the response. GPT's image models always respond with bytes, and know no `response_format`; they
//! alone send previews.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use weir_sdk::adapter::{Attachment, BodyPart, Failure, Request};
use weir_sdk::body::{Base64, Splices};
use weir_sdk::chat::{Image, ImageRequest, Source};
use weir_sdk::fields::is_advisory;
use weir_sdk::wire::{self, Fields, Ignored, refuse};

use crate::translate::form::{Form, FormFile};
use crate::translate::options::Options;

/// Fields beyond the vocabulary that pass unchanged. Only `input_fidelity` and `partial_images` change the price; the
/// host knows these.
const PASSED_FIELDS: [&str; 8] = [
    "moderation",
    "style",
    "output_compression",
    "input_fidelity",
    "partial_images",
    "response_format",
    "user",
    "safety_identifier",
];

pub(super) struct UpstreamRequest {
    pub(super) path: &'static str,
    pub(super) content_type: String,
    pub(super) body: Vec<BodyPart>,
    /// The names of omitted fields.
    pub(super) ignored: Vec<String>,
    pub(super) asks_for_stream: bool,
}

/// The body, without the edited images.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    prompt: &'a str,
    n: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quality: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    background: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_format: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(flatten)]
    extra: Fields<'a>,
}

/// The body with images by URL or id; other images need a form.
#[derive(Serialize)]
struct EditBody<'a> {
    images: Vec<ImageReference<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mask: Option<ImageReference<'a>>,
    #[serde(flatten)]
    body: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum ImageReference<'a> {
    ImageUrl(ImageUrl<'a>),
    FileId(&'a str),
}

#[derive(Serialize)]
#[serde(untagged)]
enum ImageUrl<'a> {
    Url(&'a str),
    Data(Base64<'a>),
}

/// Writes the request.
///
/// # Errors
///
/// [`FailureKind::Unsupported`](weir_sdk::adapter::FailureKind::Unsupported) with the name of a field that the
/// dialect can't express.
pub(super) fn write(
    image: &ImageRequest,
    request: &Request,
    options: &Options<'_>,
) -> Result<UpstreamRequest, Failure> {
    let mut ignored = Ignored::default();
    // The model's own name: `gpt-image-1`, `chatgpt-image-latest`, `openai/gpt-image-1`.
    let is_gpt = image.model.contains("gpt-image");
    let end_user = request.client.end_user.as_deref();
    let end_user = end_user.map(|end_user| Value::from(end_user).to_string());
    let mut extra = extra(image, is_gpt, options, &mut ignored)?;
    if let (Some(field), Some(end_user)) = (options.end_user_field, &end_user)
        && !image.extra.iter().any(|(name, _)| is_end_user(name))
    {
        extra.add(field, wire::raw(field, end_user)?);
    }
    let asks_for_stream = image.stream && is_gpt;
    let body = Body {
        model: &image.model,
        prompt: &image.prompt,
        n: image.count,
        size: image.size.as_deref(),
        quality: image.quality.as_deref(),
        background: image.background.as_deref(),
        output_format: output_format(image)?,
        stream: asks_for_stream.then_some(true),
        extra,
    };
    let written = |path, content_type: String, body| UpstreamRequest {
        path,
        content_type,
        body,
        ignored: ignored.into_names(),
        asks_for_stream,
    };
    let unwritable = |error: serde_json::Error| Failure::unsupported(error.to_string());
    let json = || "application/json".to_owned();
    if image.inputs.is_empty() {
        if image.mask.is_some() {
            return Err(refuse("mask", "mask: a mask without an image"));
        }
        let body = serde_json::to_vec(&body).map_err(unwritable)?;
        let body = vec![BodyPart::Bytes(body)];
        return Ok(written("/images/generations", json(), body));
    }
    let body = serde_json::to_value(&body).map_err(unwritable)?;
    const EDITS: &str = "/images/edits";
    let mut sources = image.inputs.iter().chain(&image.mask);
    if sources.all(|image| matches!(image.source, Source::Attachment(_))) {
        let form = form(&body, image, &request.attachments)?;
        return Ok(written(EDITS, form.content_type(), form.into_parts()));
    }
    let splices = Splices::default();
    let locate = |image, field| located(image, field, request, &splices);
    let edit = EditBody {
        images: image
            .inputs
            .iter()
            .map(|image| locate(image, "image"))
            .collect::<Result<_, _>>()?,
        mask: image
            .mask
            .as_ref()
            .map(|mask| locate(mask, "mask"))
            .transpose()?,
        body,
    };
    // Without the capacity for images: the host fills their places.
    let body = splices
        .write(&edit, image.prompt.len() + 1_024)
        .map_err(unwritable)?;
    Ok(written(EDITS, json(), body))
}

/// Writes the fields of an object, and the images, as a form.
///
/// # Errors
///
/// A field without a plain value, by its name.
fn form(fields: &Value, image: &ImageRequest, attachments: &[Attachment]) -> Result<Form, Failure> {
    let fields = fields.as_object().into_iter().flatten();
    let texts = fields.map(|(name, value)| match value {
        Value::String(text) => Ok((Cow::from(name), text.clone())),
        Value::Number(_) | Value::Bool(_) => Ok((Cow::from(name), value.to_string())),
        _ => Err(refuse(name, name)),
    });
    let mut form = Form::new(&texts.collect::<Result<Vec<_>, _>>()?)?;
    let field = match image.inputs.len() {
        1 => "image",
        _ => "image[]",
    };
    let inputs = image.inputs.iter().map(|input| (field, input));
    for (field, input) in inputs.chain(image.mask.iter().map(|mask| ("mask", mask))) {
        let Source::Attachment(index) = input.source else {
            return Err(refuse(field, format!("{field}: not in the request")));
        };
        let media_type = wire::media_type(attachments, index, None, field)?;
        let ending = media_type.rsplit('/').next().unwrap_or_default();
        form.attach(&FormFile {
            field,
            name: &format!("image.{ending}"),
            media_type,
            index,
        });
    }
    Ok(form)
}

fn extra<'a>(
    image: &'a ImageRequest,
    is_gpt: bool,
    options: &Options<'_>,
    ignored: &mut Ignored,
) -> Result<Fields<'a>, Failure> {
    let mut fields = Fields::default();
    for (name, json) in &image.extra {
        let field = name.as_str();
        match field {
            // The default behaviour of these models.
            "response_format" if is_gpt && json == "\"b64_json\"" => {}
            "response_format" if is_gpt => {
                return Err(refuse(
                    field,
                    "response_format: this model answers with b64_json",
                ));
            }
            "partial_images" if !(is_gpt && image.stream) => ignored.add(field),
            "user" | "safety_identifier" => match options.end_user_field {
                Some(_) => fields.add(name, wire::raw(field, json)?),
                None => ignored.add(field),
            },
            _ if PASSED_FIELDS.contains(&field) || options.passes(field) => {
                fields.add(name, wire::raw(field, json)?);
            }
            _ if is_advisory(field) => ignored.add(field),
            _ => return Err(refuse(field, field)),
        }
    }
    Ok(fields)
}

fn is_end_user(field: &str) -> bool {
    matches!(field, "user" | "safety_identifier")
}

fn output_format(image: &ImageRequest) -> Result<Option<&str>, Failure> {
    let Some(media_type) = &image.media_type else {
        return Ok(None);
    };
    match media_type.strip_prefix("image/") {
        Some(format) => Ok(Some(format)),
        None => Err(refuse(
            "output_format",
            format!("output_format: {media_type}"),
        )),
    }
}

fn located<'a>(
    image: &'a Image,
    field: &str,
    request: &'a Request,
    splices: &'a Splices,
) -> Result<ImageReference<'a>, Failure> {
    Ok(match &image.source {
        Source::Url(url) => ImageReference::ImageUrl(ImageUrl::Url(url)),
        Source::Id(id) => ImageReference::FileId(id),
        Source::Attachment(index) => {
            let media_type = wire::media_type(&request.attachments, *index, None, field)?;
            ImageReference::ImageUrl(ImageUrl::Data(splices.data_url(media_type, *index)))
        }
    })
}
