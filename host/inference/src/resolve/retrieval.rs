//! Requests for data about texts: vectors, an order of documents, or harmful content.

use weir_catalog::config::ModelKind;
use weir_catalog::{Catalog, Model};
use weir_dialects::{RetrievalCall, RetrievalTask};
use weir_errors::{ApiError, ErrorCode};
use weir_sandbox::adapter::bindings::rerank::RerankRequest;
use weir_upstream::usage::{BYTES_PER_TOKEN, RequestSize, input_bytes};

use super::model::{ProviderChoice, model};
use super::request::{ResolvedRequest, ResolvedTask};

/// Finds the model of such a request, and checks each of its texts against the model's window.
pub fn resolve_retrieval(
    catalog: &Catalog,
    call: RetrievalCall,
    choice: &ProviderChoice<'_>,
) -> Result<ResolvedRequest, ApiError> {
    let (kind, results) = match &call.task {
        RetrievalTask::Embeddings(task) => (ModelKind::Embeddings, task.inputs.len()),
        RetrievalTask::Rerank(_) => (ModelKind::Rerank, 1),
        RetrievalTask::Moderation(task) => (ModelKind::Moderation, task.inputs.len()),
    };
    let model = model(catalog, call.task.model(), kind)?;
    match &call.task {
        RetrievalTask::Embeddings(task) => {
            check_inputs(model, task.inputs.iter().map(input_bytes))?;
        }
        RetrievalTask::Moderation(task) => {
            check_inputs(model, task.inputs.iter().map(|text| text.len() as u64))?;
        }
        RetrievalTask::Rerank(task) => check_documents(model, task)?,
    }
    Ok(ResolvedRequest {
        allowed: choice.narrow(model)?,
        is_ordered: false,
        model: model.clone(),
        size: RequestSize::of_retrieval(&call.task),
        task: ResolvedTask::Retrieval(call.task),
        // No output is text, but each result has a few bytes around its data.
        output_limit: u32::try_from(results).unwrap_or(u32::MAX),
        widest_output: None,
        images: 0,
        ignored: Vec::new(),
        attachments: Vec::new(),
        origins: Vec::new(),
        client: call.client,
        body_bytes: call.body_bytes,
        text_bytes: call.body_bytes,
    })
}

fn check_inputs(model: &Model, inputs: impl ExactSizeIterator<Item = u64>) -> Result<(), ApiError> {
    let is_alone = inputs.len() == 1;
    for (index, bytes) in inputs.enumerate() {
        let field = || match is_alone {
            true => "input".to_owned(),
            false => format!("input[{index}]"),
        };
        check_window(model, bytes, field)?;
    }
    Ok(())
}

fn check_documents(model: &Model, task: &RerankRequest) -> Result<(), ApiError> {
    check_window(model, task.query.len() as u64, || "query".to_owned())
}

/// Checks the estimated tokens of a text. Models shorten long documents themselves.
fn check_window(model: &Model, bytes: u64, field: impl Fn() -> String) -> Result<(), ApiError> {
    let (tokens, window) = (
        bytes.div_ceil(BYTES_PER_TOKEN),
        u64::from(model.context_window),
    );
    if tokens <= window {
        return Ok(());
    }
    let field = field();
    let message = format!(
        "The model {} takes {window} tokens for each text; {field} has about {tokens}.",
        model.id
    );
    Err(ApiError::new(ErrorCode::ContextLengthExceeded, message)
        .with_param(field)
        .with_detail("context_window", window))
}
