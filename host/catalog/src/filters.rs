//! The filters of requests: `[[filters]]`, in this order.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer};
use weir_ledger::Plan;
use weir_plugins::{FilterComponent, Plugins};
use weir_sandbox::ConfigureError;
use weir_sandbox::adapter::bindings::adapter::Setting;
use weir_tools::settings::CredentialSettings;

use super::config::ModelConfig;
use super::filter_service::{FilterService, FilterServiceConfig};
use super::problem::Problem;

/// A filter of requests: `[[filters]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterConfig {
    /// Slot of the filter, such as `redact-pii`. Required.
    pub slot: String,
    /// Ids of the models whose requests pass the filter. Default: all.
    #[serde(default)]
    pub models: Vec<String>,
    /// Plans whose accounts' requests pass the filter. Default: all.
    #[serde(default)]
    pub plans: Vec<Plan>,
    /// If the filter fails or is missing, `refuse` rejects the request and `allow` continues without the filter.
    /// Default: `refuse`.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Whether weir refuses a component that may leave texts of a request unread, and requests while the slot has such a
    /// component. Default: `false`.
    #[serde(default)]
    pub guard: bool,
    /// Options of the filter. Default: none.
    #[serde(default, deserialize_with = "settings")]
    pub options: Vec<Setting>,
    /// Bytes of text of the largest response that the filter may check as a whole, at most 1 MiB; 0 allows none.
    /// Default: 64 KiB.
    #[serde(default = "whole_bytes")]
    pub whole_bytes: u32,
    /// The service that the filter may ask. Default: none.
    #[serde(default)]
    pub service: Option<FilterServiceConfig>,
}

/// The largest `whole_bytes`.
const MAX_WHOLE_BYTES: u32 = 1 << 20;

fn whole_bytes() -> u32 {
    64 << 10
}

/// The handling of a request whose filter fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// weir rejects the request.
    #[default]
    Refuse,
    /// The request continues without the filter.
    Allow,
}

fn settings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Setting>, D::Error> {
    BTreeMap::deserialize(deserializer).map(Vec::from_iter)
}

impl FilterConfig {
    /// Returns whether the filter applies to requests from a plan's accounts to a model.
    pub fn is_for(&self, model: &str, plan: Plan) -> bool {
        let any_model = self.models.is_empty() || self.models.iter().any(|id| id == model);
        any_model && (self.plans.is_empty() || self.plans.contains(&plan))
    }
}

/// Reads the services of filters, or returns the problems of their settings.
pub(super) fn services(
    filters: &[FilterConfig],
    credentials: &BTreeMap<String, CredentialSettings>,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Option<FilterService>>, Vec<Problem>> {
    let mut services = Vec::new();
    let mut problems = Vec::new();
    for (at, filter) in filters.iter().enumerate() {
        let service = filter.service.as_ref();
        let service = service.map(|config| FilterService::read(config, credentials, &environment));
        match service.transpose() {
            Ok(service) => services.push(service),
            Err((field, what)) => problems.push(Problem {
                setting: format!("filters[{at}].service.{field}"),
                what,
            }),
        }
    }
    match problems.is_empty() {
        true => Ok(services),
        false => Err(problems),
    }
}

/// Returns the unknown models that filters name, and other values that they cannot have.
pub(super) fn problems(
    filters: &[FilterConfig],
    models: &BTreeMap<String, ModelConfig>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (at, filter) in filters.iter().enumerate() {
        if filter.whole_bytes > MAX_WHOLE_BYTES {
            problems.push(Problem {
                setting: format!("filters[{at}].whole_bytes"),
                what: format!("is more than {MAX_WHOLE_BYTES}"),
            });
        }
        if filter.guard && filter.on_failure == OnFailure::Allow {
            problems.push(Problem {
                setting: format!("filters[{at}].guard"),
                what:
                    "must not be true if on_failure is \"allow\", which lets requests pass unread"
                        .to_owned(),
            });
        }
        for (index, model) in filter.models.iter().enumerate() {
            if !models.contains_key(model) {
                problems.push(Problem {
                    setting: format!("filters[{at}].models[{index}]"),
                    what: format!("the model {model:?} does not exist"),
                });
            }
        }
    }
    problems
}

/// The explanation of a filter that may leave texts of a request unread.
const UNREAD: &str = "was built before version 0.2.3 of the plugin contract and may leave texts unread that a model reads, \
     such as tools, arguments and documents; build it with the current SDK";

/// Returns a warning for each slot of filters whose component may leave texts of a request unread.
pub fn warnings(filters: &[FilterConfig], plugins: &Plugins) -> Vec<String> {
    let slots: BTreeSet<_> = filters.iter().map(|filter| filter.slot.as_str()).collect();
    let components = slots
        .into_iter()
        .filter_map(|slot| Some((slot, plugins.filter(slot)?)));
    let unread = components.filter(|(_, component)| !component.reads_all());
    unread.map(|(slot, _)| warning(slot)).collect()
}

/// Returns the warning about a filter that may leave texts of a request unread.
pub fn warning(slot: &str) -> String {
    format!("The filter {slot} {UNREAD}.")
}

/// Returns whether a version of the contract is earlier than 0.2.3, which has `filter-walk`.
pub fn is_before_walk(contract: &str) -> bool {
    let numbers: Option<Vec<u32>> = contract
        .split('.')
        .map(|number| number.parse().ok())
        .collect();
    numbers.is_none_or(|numbers| numbers.as_slice() < &[0, 2, 3][..])
}

/// Returns the options that a component rejects, of the filters with its slot, and the filters that it cannot guard.
pub(super) async fn component_problems(
    filters: &[FilterConfig],
    slot: &str,
    component: &FilterComponent,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let of_slot = filters.iter().enumerate();
    for (at, filter) in of_slot.filter(|(_, filter)| filter.slot == slot) {
        if filter.guard && !component.reads_all() {
            problems.push(Problem {
                setting: format!("filters[{at}].guard"),
                what: format!("the filter {UNREAD}"),
            });
        }
        let (setting, what) = match component.configuration(&filter.options).await {
            Ok(_) => continue,
            Err(ConfigureError::Refused { name, why }) => (format!(".options.{name}"), why),
            Err(error) => (
                ".options".to_owned(),
                format!("cannot be validated: {error}"),
            ),
        };
        problems.push(Problem {
            setting: format!("filters[{at}]{setting}"),
            what,
        });
    }
    problems
}

/// Validates filters' options and guards with the active components, and logs a warning for each component that may leave
/// texts unread. If operators manage a slot, or it is empty, errors go to the
/// log only: they could not activate another component in a gateway that does not start. weir rejects requests
/// meanwhile.
pub async fn check_filters(filters: &[FilterConfig], plugins: &Plugins) -> Vec<Problem> {
    for warning in warnings(filters, plugins) {
        tracing::warn!("{warning}");
    }
    let mut problems = Vec::new();
    for (at, FilterConfig { slot, .. }) in filters.iter().enumerate() {
        if filters[..at].iter().any(|before| before.slot == *slot) {
            continue;
        }
        let Some(component) = plugins.filter(slot) else {
            tracing::error!(
                slot,
                "the slot has no filter, so weir rejects the requests that need it: weir plugin install FILE \
                         --slot {slot} --activate"
            );
            continue;
        };
        let found = component_problems(filters, slot, &component).await;
        if !plugins.is_operated(slot) {
            problems.extend(found);
            continue;
        }
        for Problem { setting, what } in found {
            tracing::error!(
                setting,
                "the active component rejects the configuration: {what}"
            );
        }
    }
    problems
}
