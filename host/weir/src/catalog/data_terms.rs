//! The places where providers process data, the days for which they keep requests, and the choice of a model's upstreams
//! by a request's [limits](crate::limits::data).
//!
//! **Invariant:** an unknown place satisfies no list of regions, and an unknown retention no maximum. Without a remaining
//! upstream, weir rejects the request.

use serde_json::{Value, json};
use weir_errors::{ApiError, ErrorCode};

use super::{Candidate, Model};
use crate::identity::{Caller, limits};
use crate::limits::data::{CallerDataLimits, DataLimits, Regions};

/// A provider's terms.
#[derive(Debug, Clone)]
pub enum DataTerms {
    /// The provider has no URL, so nothing leaves the gateway: it satisfies every limit.
    Local,
    /// The terms that the operator configured.
    Configured {
        /// The places where it processes data; `None` if they are unknown.
        regions: Option<Regions>,
        /// The days for which it keeps requests; `None` if they are unknown.
        retention_days: Option<u16>,
    },
}

/// The limits that apply to a request, each with its source.
pub struct RequestDataLimits<'a> {
    caller: &'a CallerDataLimits,
    headers: DataLimits,
}

impl DataTerms {
    fn are_within(&self, allowed: &Regions) -> bool {
        match self {
            Self::Local => true,
            Self::Configured { regions, .. } => {
                let regions = regions.as_ref();
                regions.is_some_and(|regions| allowed.include(regions))
            }
        }
    }

    fn keep_at_most(&self, days: u16) -> bool {
        match self {
            Self::Local => true,
            Self::Configured { retention_days, .. } => {
                retention_days.is_some_and(|retention| retention <= days)
            }
        }
    }

    /// Returns the part of some limits that the terms do not satisfy.
    fn unsatisfied(&self, limits: &DataLimits) -> DataLimits {
        let (regions, days) = (limits.regions.as_ref(), limits.max_retention_days);
        DataLimits {
            regions: regions.filter(|allowed| !self.are_within(allowed)).cloned(),
            max_retention_days: days.filter(|days| !self.keep_at_most(*days)),
        }
    }
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
