//! Requests to models that make images: by an image endpoint, or in a chat with a model that makes only images.
//!
//! A price per image covers images within the limits of the model's catalog entry: input tokens (`context_window`),
//! sizes and qualities, if listed. weir rejects other values by name. If a request leaves a value open, weir sends the
//! first listed one, because a provider may choose a more expensive one.

use std::sync::Arc;

use weir_catalog::{Catalog, Model};
use weir_dialects::{Attachment, ChatCall, MessageOrigin};
use weir_errors::{ApiError, ErrorCode};
use weir_kinds::images::ImageCall;
use weir_sandbox::adapter::WorkKind;
use weir_sandbox::adapter::bindings::adapter::Task;
use weir_sandbox::adapter::bindings::chat::{
    ChatRequest, Content, ImageRequest, Message, ResponseFormat, Role,
};
use weir_upstream::usage::RequestSize;

use super::model::{ProviderChoice, model};
use super::request::{ResolvedRequest, adapter_request};

/// Finds the model of an image request, and checks the request against its limits.
pub(super) fn resolve_images(
    catalog: &Catalog,
    call: ImageCall,
    choice: &ProviderChoice<'_>,
) -> Result<ResolvedRequest, ApiError> {
    let model = model(catalog, &call.request.model, WorkKind::Chat)?;
    if !model.makes_images() {
        let message = format!("The model {} does not make images.", model.id);
        return Err(bad(ErrorCode::ModelNotSupported, message).with_param("model"));
    }
    let text_bytes = call.text_bytes();
    let mut request = call.request;
    let size = check(model, &mut request, &call.attachments, "prompt", "image")?;
    let images = request.count;
    Ok(ResolvedRequest {
        allowed: choice.narrow(model)?,
        is_ordered: false,
        model: model.clone(),
        request: adapter_request(Task::Image(request), &call.attachments, call.client),
        output_limit: model.max_output_tokens.saturating_mul(images),
        widest_output: None,
        images,
        ignored: Vec::new(),
        attachments: call.attachments,
        origins: Vec::new(),
        size,
        body_bytes: call.body_bytes,
        text_bytes,
    })
}

/// Converts a chat with a model that makes only images to an image request: the last user message is the prompt, and
/// its images are the input to edit. The model does not receive earlier messages.
pub(super) fn of_chat(
    model: &Arc<Model>,
    call: ChatCall,
    text_bytes: usize,
    choice: &ProviderChoice<'_>,
) -> Result<ResolvedRequest, ApiError> {
    check_settings(model, &call.request)?;
    let messages = &call.request.messages;
    let last = messages
        .iter()
        .rposition(|message| message.role == Role::User);
    let origin = last.and_then(|last| call.origins.get(last));
    let origin = origin.filter(|origin| **origin != MessageOrigin::Session);
    let (Some(last), Some(origin)) = (last, origin) else {
        let message = "A user message must describe the image in words.";
        return Err(ApiError::invalid_request("messages", message));
    };
    let field = call.dialect.content_place(*origin);
    let mut request = image_of(model, &messages[last], &field)?;
    let user = call.request.extra.iter();
    request.extra = user.cloned().collect();
    let size = check(model, &mut request, &call.attachments, &field, &field)?;
    let mut ignored = Vec::new();
    if messages.len() > 1 {
        ignored.push("messages".to_owned());
    }
    if call.output_limit.is_some() {
        ignored.push(call.output_limit_param.to_owned());
    }
    let mut parts = messages[last].parts.iter();
    if parts.any(|part| part.cache.is_some()) {
        ignored.push("cache_control".to_owned());
    }
    Ok(ResolvedRequest {
        allowed: choice.narrow(model)?,
        is_ordered: false,
        model: model.clone(),
        request: adapter_request(Task::Image(request), &call.attachments, call.client),
        output_limit: model.max_output_tokens,
        widest_output: None,
        images: 1,
        ignored,
        attachments: call.attachments,
        origins: Vec::new(),
        size,
        body_bytes: call.body_bytes,
        text_bytes,
    })
}

/// Refuses settings that change text but cannot change an image.
fn check_settings(model: &Model, request: &ChatRequest) -> Result<(), ApiError> {
    let reasoning = &request.reasoning;
    let asks_for_reasoning = reasoning.effort.is_some() || reasoning.budget_tokens.is_some();
    let given = [
        (!request.tools.is_empty(), "tools"),
        (
            request.response_format != ResponseFormat::Text,
            "response_format",
        ),
        (asks_for_reasoning, "reasoning"),
        (request.temperature.is_some(), "temperature"),
        (request.top_p.is_some(), "top_p"),
        (request.top_k.is_some(), "top_k"),
        (request.presence_penalty.is_some(), "presence_penalty"),
        (request.frequency_penalty.is_some(), "frequency_penalty"),
        (request.seed.is_some(), "seed"),
        (!request.stop.is_empty(), "stop"),
    ];
    match given.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, name)) => Err(unsupported(model, name)),
        None => Ok(()),
    }
}

fn image_of(model: &Model, said: &Message, field: &str) -> Result<ImageRequest, ApiError> {
    let mut prompt = String::new();
    let mut inputs = Vec::new();
    for part in &said.parts {
        match &part.content {
            Content::Text(text) => {
                if !prompt.is_empty() {
                    prompt.push('\n');
                }
                prompt.push_str(text);
            }
            Content::Image(image) => inputs.push(image.clone()),
            _ => return Err(unsupported(model, field)),
        }
        if !part.extra.is_empty() {
            return Err(unsupported(model, field));
        }
    }
    if prompt.trim().is_empty() {
        let message = format!("{field} must describe the image in words.");
        return Err(ApiError::invalid_request(field, message));
    }
    Ok(ImageRequest {
        model: model.id.clone(),
        prompt,
        inputs,
        mask: None,
        count: 1,
        size: None,
        quality: None,
        background: None,
        media_type: None,
        extra: Vec::new(),
        stream: false,
    })
}

/// Checks a request against the limits of its model and of its price per image. The fields name the prompt and the
/// images. Returns the size of the request.
fn check(
    model: &Model,
    request: &mut ImageRequest,
    attachments: &[Attachment],
    prompt_field: &str,
    image_field: &str,
) -> Result<RequestSize, ApiError> {
    if !model.supports_vision && !request.inputs.is_empty() {
        let message = format!("The model {} cannot edit images.", model.id);
        return Err(bad(ErrorCode::VisionNotSupported, message).with_param(image_field));
    }
    cover(model, "size", &mut request.size, &model.image_sizes)?;
    cover(
        model,
        "quality",
        &mut request.quality,
        &model.image_qualities,
    )?;
    let size = RequestSize::of_images(request, attachments, model.image_counting());
    let input = size.estimated_tokens();
    let window = u64::from(model.context_window);
    if input > window {
        let message = format!(
            "The model {} takes {window} tokens; the prompt and the input images have about {input}.",
            model.id
        );
        return Err(bad(ErrorCode::ContextLengthExceeded, message)
            .with_param(prompt_field)
            .with_detail("context_window", window));
    }
    Ok(size)
}

/// Checks a value against the list that the price covers; sets the first entry if the value is missing.
fn cover(
    model: &Model,
    field: &'static str,
    asked: &mut Option<String>,
    covered: &[String],
) -> Result<(), ApiError> {
    let Some(default) = covered.first() else {
        return Ok(());
    };
    match asked.as_deref() {
        None | Some("auto") => *asked = Some(default.clone()),
        Some(word) if covered.iter().any(|known| known == word) => {}
        Some(_) => {
            let covered = covered.join(", ");
            let message = format!(
                "{field} must be one of {covered}: the price per image of {} covers no other value.",
                model.id
            );
            return Err(ApiError::invalid_request(field, message));
        }
    }
    Ok(())
}

fn unsupported(model: &Model, field: &str) -> ApiError {
    let message = format!(
        "The model {} makes images and does not support this field.",
        model.id
    );
    bad(ErrorCode::UnsupportedParameter, message).with_param(field)
}

fn bad(code: ErrorCode, message: String) -> ApiError {
    ApiError::new(code, message)
}
