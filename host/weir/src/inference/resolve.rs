//! Resolves a client's request: the model, its limits, the output limit. [`images`] resolves requests for models that
//! make images.

mod images;

use std::sync::Arc;

use http::StatusCode;

pub use self::images::resolve_images;
use weir_dialects::{Attachment, ChatCall, Origin};
use weir_errors::{ApiError, ErrorCode};

use crate::catalog::{Candidate, Catalog, Model};
use crate::context::WANTED_PROVIDER;
use weir_sandbox::adapter::bindings::adapter::{Client, Task};
use weir_sandbox::adapter::bindings::chat::{ChatRequest, Content, ToolContent};
use weir_sandbox::printable;
use weir_upstream::usage::RequestSize;

/// The maximum bytes of a model's name in an error.
const MAX_NAME_BYTES: usize = 256;

/// A request that fits its model.
pub struct Resolved {
    /// The model, with the upstreams that serve it.
    pub model: Arc<Model>,
    /// The allowed upstreams, as indexes into the model's candidates; never empty.
    pub allowed: Vec<usize>,
    /// Whether weir must keep this order, regardless of weights.
    pub is_ordered: bool,
    /// The request, with its output limit.
    pub task: Task,
    /// The maximum tokens of the response.
    pub output_limit: u32,
    /// The requested number of images.
    pub images: u32,
    /// The names of advisory fields that the model does not receive.
    pub ignored: Vec<String>,
    /// The bytes of its images, audio and documents.
    pub attachments: Vec<Attachment>,
    /// The position of each message in the client's body.
    pub origins: Vec<Origin>,
    /// The client, as far as an upstream needs it.
    pub client: Client,
    /// The size of the request for the model.
    pub size: RequestSize,
    /// The bytes of the client's body.
    pub body_bytes: usize,
    /// The approximate bytes that an adapter receives.
    pub text_bytes: usize,
}

/// Finds the model and checks the request against its limits. Each error has its own code. `wanted` has the client's
/// allowed providers, if any.
pub fn resolve(
    catalog: &Catalog,
    call: ChatCall,
    wanted: Option<&str>,
) -> Result<Resolved, ApiError> {
    let text_bytes = call.text_bytes();
    let mut request = call.request;
    let bad = |code, message: String| ApiError::new(code, message);
    let model = model(catalog, &request.model)?;
    if !model.supports_tools && (call.needs_tools || !request.tools.is_empty()) {
        let param = if call.needs_tools { "model" } else { "tools" };
        return Err(bad(
            ErrorCode::ModelNotSupported,
            format!("The model {} cannot call tools.", model.id),
        )
        .with_param(param));
    }
    if model.makes_images() && !model.supports_chat {
        let call = ChatCall { request, ..call };
        return images::of_chat(model, call, text_bytes, wanted);
    }
    if model.makes_images() && request.modalities.is_empty() {
        request.modalities = ["image", "text"].map(str::to_owned).to_vec();
    }
    if !model.supports_vision
        && let Some(index) = first_message_with_image(&request)
    {
        return Err(bad(
            ErrorCode::VisionNotSupported,
            format!("The model {} cannot read images or files.", model.id),
        )
        .with_param(match call.origins.get(index) {
            Some(Origin::Session) | None => call.dialect.place(Origin::Session),
            Some(origin) => call.dialect.place(*origin) + ".content",
        }));
    }
    if let Some(limit) = call.output_limit
        && limit > model.max_output_tokens
    {
        return Err(bad(
            ErrorCode::OutputLimitExceeded,
            format!(
                "The model {} generates at most {} tokens.",
                model.id, model.max_output_tokens
            ),
        )
        .with_param(call.output_limit_param));
    }
    let size = RequestSize::of(&request, &call.attachments);
    let window = u64::from(model.context_window);
    let input = size.estimated_tokens(model.max_image_tokens.into());
    // Without a client's limit, the default shrinks if the input is long.
    let left = window.saturating_sub(input);
    let output = match call.output_limit {
        Some(limit) => u64::from(limit),
        None => u64::from(model.default_output_tokens).min(left.max(1)),
    };
    if input + output > window {
        return Err(bad(
            ErrorCode::ContextLengthExceeded,
            // The text is OpenAI's: agents recognise it, and then shorten their messages.
            format!(
                "This model's maximum context length is {window} tokens. However, you requested {} tokens \
                 ({input} in the messages, {output} in the completion). Please reduce the length of the messages \
                 or completion. What the messages have is an estimate.",
                input + output
            ),
        )
        .with_param("messages")
        .with_detail("context_window", window));
    }
    let output_limit = u32::try_from(output).unwrap_or(model.max_output_tokens);
    request.max_output_tokens = output_limit;
    Ok(Resolved {
        allowed: narrow(model, wanted)?,
        is_ordered: false,
        model: model.clone(),
        task: Task::Chat(request),
        output_limit,
        images: model.makes_images().into(),
        ignored: Vec::new(),
        attachments: call.attachments,
        origins: call.origins,
        client: call.client,
        size,
        body_bytes: call.body_bytes,
        text_bytes,
    })
}

/// Estimates a request's input tokens, for the check against the model's window. The result may exceed the window.
pub fn estimated_input(catalog: &Catalog, call: &ChatCall) -> Result<u64, ApiError> {
    let model = model(catalog, &call.request.model)?;
    let size = RequestSize::of(&call.request, &call.attachments);
    Ok(size.estimated_tokens(model.max_image_tokens.into()))
}

fn model<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Arc<Model>, ApiError> {
    let unknown = || unknown_model(catalog, StatusCode::BAD_REQUEST, name).with_param("model");
    catalog.model(name).ok_or_else(unknown)
}

/// Returns the indexes of the candidates that a client allows: all, or those at the named providers, separated by
/// commas.
///
/// # Errors
///
/// 400 `INVALID_REQUEST` if none remains.
pub(super) fn narrow(model: &Model, wanted: Option<&str>) -> Result<Vec<usize>, ApiError> {
    let all = model.candidates.iter().enumerate();
    let Some(wanted) = wanted else {
        return Ok(all.map(|(index, _)| index).collect());
    };
    let named: Vec<&str> = wanted.split(',').map(str::trim).collect();
    let is_allowed = |candidate: &Candidate| named.contains(&candidate.upstream.name.as_str());
    let allowed: Vec<usize> = all
        .filter(|(_, candidate)| is_allowed(candidate))
        .map(|(index, _)| index)
        .collect();
    if allowed.is_empty() {
        let mut providers: Vec<_> = model
            .candidates
            .iter()
            .map(|candidate| candidate.upstream.name.as_str())
            .collect();
        providers.dedup();
        return Err(ApiError::invalid_request(
            WANTED_PROVIDER.as_str(),
            format!(
                "None of these providers serves {}; its providers are {}.",
                model.id,
                providers.join(", ")
            ),
        ));
    }
    Ok(allowed)
}

/// The error for an unknown model.
pub fn unknown_model(catalog: &Catalog, status: StatusCode, name: &str) -> ApiError {
    let remedy = catalog.remedy(name);
    let name = printable(name, MAX_NAME_BYTES);
    let mut message = format!("The model {name:?} does not exist; GET /models lists all models.");
    if let Some(remedy) = &remedy {
        message = format!("{message} {remedy}");
    }
    let error = ApiError::new(ErrorCode::UnknownModel, message)
        .with_status(status)
        .with_detail("model", name);
    match remedy {
        Some(remedy) => error.with_detail("remedy", remedy),
        None => error,
    }
}

fn first_message_with_image(request: &ChatRequest) -> Option<usize> {
    request.messages.iter().position(|message| {
        message.parts.iter().any(|part| match &part.content {
            Content::Image(_) | Content::File(_) => true,
            Content::ToolResult(result) => result
                .content
                .iter()
                .any(|content| matches!(content, ToolContent::Image(_) | ToolContent::File(_))),
            _ => false,
        })
    })
}
