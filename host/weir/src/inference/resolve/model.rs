//! The model of a request, and the upstreams that may serve it.

use std::sync::Arc;

use http::StatusCode;
use weir_errors::{ApiError, ErrorCode};
use weir_sandbox::printable;

use crate::catalog::config::ModelKind;
use crate::catalog::{Candidate, Catalog, Model};
use crate::context::WANTED_PROVIDER;

/// The maximum bytes of a model's name in an error.
const MAX_NAME_BYTES: usize = 256;

/// Returns the model with this name, which must serve requests of this kind.
pub(super) fn model<'a>(
    catalog: &'a Catalog,
    name: &str,
    kind: ModelKind,
) -> Result<&'a Arc<Model>, ApiError> {
    let unknown = || unknown_model(catalog, StatusCode::BAD_REQUEST, name).with_param("model");
    let model = catalog.model(name).ok_or_else(unknown)?;
    if model.kind == kind {
        return Ok(model);
    }
    let what = match model.kind {
        ModelKind::Chat => "is for chats or images: use another endpoint",
        ModelKind::Embeddings => "makes embeddings: use /v1/embeddings",
        ModelKind::Rerank => "orders documents: use /v1/rerank",
    };
    let message = format!("The model {} {what}.", model.id);
    Err(ApiError::new(ErrorCode::ModelNotSupported, message).with_param("model"))
}

/// Returns the indexes of the candidates that a client allows: all, or those at the named providers, separated by
/// commas.
///
/// # Errors
///
/// 400 `INVALID_REQUEST` if none remains.
pub(in crate::inference) fn narrow(
    model: &Model,
    wanted: Option<&str>,
) -> Result<Vec<usize>, ApiError> {
    let all = model.candidates.iter().enumerate();
    let Some(wanted) = wanted else {
        return Ok(all.map(|(index, _)| index).collect());
    };
    let named: Vec<&str> = wanted.split(',').map(str::trim).collect();
    let is_allowed = |candidate: &Candidate| named.contains(&candidate.upstream().name.as_str());
    let allowed: Vec<usize> = all
        .filter(|(_, candidate)| is_allowed(candidate))
        .map(|(index, _)| index)
        .collect();
    if allowed.is_empty() {
        let mut providers: Vec<_> = model
            .candidates
            .iter()
            .map(|candidate| candidate.upstream().name.as_str())
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
