//! The duration and the effects of a filter on one request.

use std::sync::Arc;
use std::time::Duration;

use weir_catalog::filters::OnFailure;
use weir_ledger::AccountId;
use weir_plugins::canary::samples::Sampler;
use weir_plugins::counters::{ExchangeEnd, FilterEffects};
use weir_plugins::oversight::{ExchangeRecord, Oversight};
use weir_plugins::slots::ChosenComponent;
use weir_plugins::{FilterComponent, Plugin};
use weir_sandbox::GuestError;
use weir_upstream::error::{ExchangeError, LARGE_REQUEST_BYTES, can_be_of_size};
use weir_upstream::filter_rules::FilterFault;

/// A filter's cost and result for a request, recorded on drop.
pub(super) struct FilterMeasurement {
    pub(super) component: Arc<FilterComponent>,
    sampler: Option<Sampler>,
    oversight: Oversight,
    account: AccountId,
    is_guard: bool,
    pub(super) took: Duration,
    pub(super) effects: FilterEffects,
    ended: ExchangeEnd,
}

impl FilterMeasurement {
    pub(super) fn new(
        oversight: &Oversight,
        chosen: ChosenComponent<FilterComponent>,
        on_failure: OnFailure,
        account: &AccountId,
    ) -> Self {
        Self {
            component: chosen.component,
            sampler: chosen.sampler,
            oversight: oversight.clone(),
            account: account.clone(),
            is_guard: on_failure == OnFailure::Refuse,
            took: Duration::ZERO,
            effects: FilterEffects::default(),
            ended: ExchangeEnd::Well,
        }
    }

    /// Records a failure on a request with a body of this size.
    pub(super) fn failed(&mut self, fault: &FilterFault, body_bytes: usize) -> ExchangeError {
        let is_of_size = body_bytes > LARGE_REQUEST_BYTES
            && match fault {
                FilterFault::Guest(error) => can_be_of_size(error),
                FilterFault::ServiceRequestTooLarge(_) => true,
                _ => false,
            };
        let error = match fault {
            FilterFault::Guest(GuestError::NoRoom) => ExchangeError::Guest(GuestError::NoRoom),
            _ if is_of_size => ExchangeError::TooLargeToFilter,
            _ => ExchangeError::Filter(self.component.code().name.clone()),
        };
        // A client must not be able to disable a filter for all clients by sending large requests.
        self.ended = match fault {
            FilterFault::Guest(GuestError::NoRoom)
            | FilterFault::Service(_)
            | FilterFault::Undecided(_) => ExchangeEnd::InError,
            _ if is_of_size => ExchangeEnd::InError,
            FilterFault::Guest(_) => ExchangeEnd::InTrap,
            _ => ExchangeEnd::InFault,
        };
        // The log already has the last words of a terminated guest.
        if !matches!(fault, FilterFault::Guest(_)) {
            let slot = &self.component.code().name;
            tracing::warn!(slot = &**slot, error = %fault, "a filter failed");
        }
        error
    }
}

impl Drop for FilterMeasurement {
    fn drop(&mut self) {
        let plugin = Plugin::Filter(self.component.clone());
        let noted = ExchangeRecord {
            ended: self.ended,
            took: self.took,
            effects: Some(self.effects),
            is_guard: self.is_guard,
            first_token: None,
            sampler: self.sampler.as_ref(),
        };
        self.oversight.note(&plugin, &self.account, noted);
    }
}
