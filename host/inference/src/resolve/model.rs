//! The model of a request, and the upstreams that may serve it.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use weir_catalog::permitted::RequestDataLimits;
use weir_catalog::{Candidate, Catalog, Model};
use weir_errors::{ApiError, ErrorCode};
use weir_request::context::{PROVIDER, RequestContext};
use weir_request::limits::data::{CallerDataLimits, DataLimits};
use weir_sandbox::adapter::WorkKind;
use weir_sandbox::printable;

/// The maximum bytes of a model's name in an error.
const MAX_NAME_BYTES: usize = 256;

/// The time after which a client may retry a model whose providers are disabled.
const DISABLED_RETRY: Duration = Duration::from_secs(60);

/// Returns the model with this name, which must serve requests of this kind.
pub(super) fn model<'a>(
    catalog: &'a Catalog,
    name: &str,
    kind: WorkKind,
) -> Result<&'a Arc<Model>, ApiError> {
    let Some(model) = catalog.model(name) else {
        let error = match catalog.is_disabled_at_providers(name) {
            true => {
                let message = "No provider of this model is enabled at the moment.";
                ApiError::new(ErrorCode::UpstreamUnavailable, message)
                    .with_retry_after(DISABLED_RETRY)
            }
            false => unknown_model(catalog, StatusCode::BAD_REQUEST, name),
        };
        return Err(error.with_param("model"));
    };
    if model.kind == kind {
        return Ok(model);
    }
    let what = weir_kinds::purpose(model.kind);
    let message = format!("The model {} {what}.", model.id);
    Err(ApiError::new(ErrorCode::ModelNotSupported, message).with_param("model"))
}

/// The providers that a request may use: those that satisfy all limits and that the client names.
pub struct ProviderChoice<'a> {
    limits: RequestDataLimits<'a>,
    /// The names in the client's header, separated by commas; all providers without it.
    wanted: Option<&'a str>,
}

impl<'a> ProviderChoice<'a> {
    /// Returns the choice of a caller with these limits.
    ///
    /// # Errors
    ///
    /// 400 that names an invalid header.
    pub fn of(caller: &'a CallerDataLimits, context: &'a RequestContext) -> Result<Self, ApiError> {
        Ok(Self {
            limits: RequestDataLimits::new(caller, DataLimits::asked(context)?),
            wanted: context.asked(&PROVIDER),
        })
    }

    /// Returns the indexes of a model's candidates that the request may use; never empty.
    ///
    /// # Errors
    ///
    /// 400 `INVALID_REQUEST` if the client names none of the model's providers, 403 `NO_PERMITTED_PROVIDER` if no
    /// remaining provider satisfies the limits.
    pub fn narrow(&self, model: &Model) -> Result<Vec<usize>, ApiError> {
        self.limits.narrow(model, wanted(model, self.wanted)?)
    }
}

/// Returns the indexes of the candidates that a client names: all without names.
fn wanted(model: &Model, wanted: Option<&str>) -> Result<Vec<usize>, ApiError> {
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
            PROVIDER.as_str(),
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
