//! The choice of a model's upstreams by a request's [limits](weir_request::limits::data).
//!
//! **Invariant:** if no upstream satisfies all limits, weir rejects the request.

use serde_json::{Value, json};
use weir_errors::{ApiError, ErrorCode};
use weir_identity::{Caller, limits};
use weir_request::limits::data::{CallerDataLimits, DataLimits};

use super::{Candidate, Model};

/// The limits that apply to a request, each with its source.
pub struct RequestDataLimits<'a> {
    caller: &'a CallerDataLimits,
    headers: DataLimits,
}

impl<'a> RequestDataLimits<'a> {
    /// Returns the limits of a request with these headers.
    pub fn new(caller: &'a CallerDataLimits, headers: DataLimits) -> Self {
        Self { caller, headers }
    }

    fn sources(&self) -> [(&'static str, &DataLimits); 3] {
        [
            ("key", &self.caller.key),
            ("organisation", &self.caller.organisation),
            ("header", &self.headers),
        ]
    }

    fn permit(&self, candidate: &Candidate) -> bool {
        let mut sources = self.sources().into_iter();
        sources.all(|(_, limits)| candidate.data_terms.unsatisfied(limits).is_empty())
    }

    /// Removes the candidates of a model that do not satisfy all limits.
    ///
    /// # Errors
    ///
    /// 403 `NO_PERMITTED_PROVIDER` with the limits that exclude candidates, if none remains.
    pub fn narrow(&self, model: &Model, candidates: Vec<usize>) -> Result<Vec<usize>, ApiError> {
        let permitted: Vec<_> = (candidates.iter().copied())
            .filter(|index| self.permit(&model.candidates[*index]))
            .collect();
        if !permitted.is_empty() {
            return Ok(permitted);
        }
        let mut excluding = self
            .sources()
            .map(|(source, _)| (source, DataLimits::default()));
        for index in candidates {
            let terms = &model.candidates[index].data_terms;
            for ((_, limits), (_, excluding)) in self.sources().iter().zip(&mut excluding) {
                let unsatisfied = terms.unsatisfied(limits);
                excluding.regions = excluding.regions.take().or(unsatisfied.regions);
                let days = &mut excluding.max_retention_days;
                *days = days.or(unsatisfied.max_retention_days);
            }
        }
        Err(none_permitted(model, &excluding))
    }
}

impl Model {
    /// Returns the first candidate that satisfies a caller's limits.
    pub fn preferred(&self, limits: &CallerDataLimits) -> Option<&Candidate> {
        let limits = RequestDataLimits::new(limits, DataLimits::default());
        let mut candidates = self.candidates.iter();
        candidates.find(|candidate| limits.permit(candidate))
    }
}

/// Returns whether a caller may use a model: the key allows it, and a candidate satisfies the caller's limits.
pub fn may_use(caller: &Caller, model: &Model) -> bool {
    limits::may_use(caller.models(), &model.id) && model.preferred(&caller.data_limits).is_some()
}

/// 403: no upstream satisfies these limits.
fn none_permitted(model: &Model, excluding: &[(&str, DataLimits)]) -> ApiError {
    let shown = excluding.iter().flat_map(|(source, limits)| {
        let limits = limits.shown().into_iter();
        limits.map(move |limit| format!("{limit} ({source})"))
    });
    let shown = shown.collect::<Vec<_>>().join("; ");
    let message = format!(
        "No provider of {} satisfies these limits: {shown}.",
        model.id
    );
    let excluding = excluding.iter().filter(|(_, limits)| !limits.is_empty());
    let details = excluding.map(|(source, limits)| {
        let mut detail = json!(limits);
        detail["source"] = json!(source);
        detail
    });
    let details: Value = details.collect();
    ApiError::new(ErrorCode::NoPermittedProvider, message)
        .with_detail("model", model.id.clone())
        .with_detail("limits", details)
        .with_no_retry()
}
