//! Resolves a client's request: the model, its limits, the output limit. [`images`] resolves requests for models that
//! make images, and the crate `kinds` has the limits of other kinds.

mod images;
mod model;
mod request;

use weir_catalog::Catalog;
use weir_dialects::{ChatCall, MessageOrigin, hosted};
use weir_errors::{ApiError, ErrorCode};
use weir_kinds::KindCall;
use weir_sandbox::adapter::bindings::adapter::Task;
use weir_sandbox::adapter::bindings::chat::{ChatRequest, Content, ToolContent};
use weir_sandbox::adapter::{AdapterRequest, WorkKind};
use weir_upstream::file_reader::DocumentSize;
use weir_upstream::usage::RequestSize;

use self::model::model;
pub use self::model::{ProviderChoice, unknown_model};
pub use self::request::ResolvedRequest;
use self::request::adapter_request;
use crate::work::Work;

/// Finds the model and checks the request against its limits. Each error has its own code.
pub fn resolve(
    catalog: &Catalog,
    work: Work,
    choice: &ProviderChoice<'_>,
) -> Result<ResolvedRequest, ApiError> {
    match work {
        Work::Chat(call) => resolve_chat(catalog, call, choice),
        Work::Images(call) => images::resolve_images(catalog, call, choice),
        Work::Other(call) => resolve_kind(catalog, call, choice),
    }
}

fn resolve_kind(
    catalog: &Catalog,
    call: KindCall,
    choice: &ProviderChoice<'_>,
) -> Result<ResolvedRequest, ApiError> {
    let request = &call.request;
    let model = model(catalog, request.model(), request.kind())?;
    let bounds = weir_kinds::kind(request).bounds(&model.terms())?;
    Ok(ResolvedRequest {
        allowed: choice.narrow(model)?,
        is_ordered: false,
        model: model.clone(),
        size: bounds.size,
        output_limit: bounds.output_limit,
        widest_output: None,
        images: 0,
        ignored: Vec::new(),
        origins: Vec::new(),
        text_bytes: call.text_bytes(),
        body_bytes: call.body_bytes,
        attachments: call.attachments,
        request: AdapterRequest::Other(call.request),
    })
}

fn resolve_chat(
    catalog: &Catalog,
    call: ChatCall,
    choice: &ProviderChoice<'_>,
) -> Result<ResolvedRequest, ApiError> {
    let text_bytes = call.text_bytes();
    let mut request = call.request;
    let bad = |code, message: String| ApiError::new(code, message);
    let model = model(catalog, &request.model, WorkKind::Chat)?;
    if !model.supports_tools && (call.needs_tools || !request.tools.is_empty()) {
        let param = if call.needs_tools { "model" } else { "tools" };
        return Err(bad(
            ErrorCode::ModelNotSupported,
            format!("The model {} cannot call tools.", model.id),
        )
        .with_param(param));
    }
    if model.makes_images() && !call.dialect.has_images() {
        return Err(bad(
            ErrorCode::ModelNotSupported,
            format!(
                "The model {} makes images, which this format has no place for.",
                model.id
            ),
        )
        .with_param("model"));
    }
    if model.makes_images() && !model.supports_chat {
        let call = ChatCall { request, ..call };
        return images::of_chat(model, call, text_bytes, choice);
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
            Some(MessageOrigin::Session) | None => call.dialect.place(MessageOrigin::Session),
            Some(origin) => call.dialect.content_place(*origin),
        }));
    }
    let mut output_limit = call.output_limit;
    if call.dialect.requires_output_limit() {
        lower_output_limit(&mut output_limit, &mut request, model.max_output_tokens);
    }
    if let Some(limit) = output_limit
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
    hosted::limit_uses(&mut request, &call.client.dialect)?;
    let size = RequestSize::of(&request, &call.attachments, model.image_counting());
    let window = u64::from(model.context_window);
    let input = size.estimated_tokens();
    // Without a client's limit, the default shrinks if the input is long.
    let left = window.saturating_sub(input);
    let output = match output_limit {
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
                 or completion. The token count of the messages is an estimate.",
                input + output
            ),
        )
        .with_param(call.dialect.field("messages"))
        .with_detail("context_window", window));
    }
    let output_limit = u32::try_from(output).unwrap_or(model.max_output_tokens);
    request.max_output_tokens = output_limit;
    Ok(ResolvedRequest {
        allowed: choice.narrow(model)?,
        is_ordered: false,
        model: model.clone(),
        request: adapter_request(Task::Chat(request), &call.attachments, call.client),
        output_limit,
        widest_output: match call.output_limit {
            None if !model.makes_images() => {
                let left = u32::try_from(left).unwrap_or(u32::MAX);
                Some(model.max_output_tokens.min(left))
            }
            _ => None,
        },
        images: model.makes_images().into(),
        ignored: Vec::new(),
        attachments: call.attachments,
        origins: call.origins,
        size,
        body_bytes: call.body_bytes,
        text_bytes,
    })
}

/// Lowers an output limit to the model's maximum, and a budget of reasoning with it, which must be below the limit.
fn lower_output_limit(limit: &mut Option<u32>, request: &mut ChatRequest, most: u32) {
    if limit.is_some_and(|limit| limit > most) {
        *limit = Some(most);
        let budget = &mut request.reasoning.budget_tokens;
        *budget = budget.map(|budget| budget.min(most.saturating_sub(1)));
    }
}

/// Estimates a request's input tokens, with those of its files. The documents have these sizes. The result may exceed the
/// model's window.
pub fn estimated_input(
    catalog: &Catalog,
    call: &ChatCall,
    documents: &[(u64, Option<DocumentSize>)],
) -> Result<u64, ApiError> {
    let model = model(catalog, &call.request.model, WorkKind::Chat)?;
    let size = RequestSize::of(&call.request, &call.attachments, model.image_counting());
    let size = size.with_documents(documents);
    Ok(
        size.estimated_tokens_with_files(
            model.max_image_tokens.into(),
            model.context_window.into(),
        ),
    )
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
