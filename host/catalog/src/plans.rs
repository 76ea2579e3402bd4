//! Models and price factors of plans: `[plans.NAME]`.

use std::collections::BTreeMap;

use serde::Deserialize;
use weir_ledger::Plan;
use weir_ledger::price::{Factor, PriceFactors};

use super::config::ModelConfig;
use super::problem::Problem;

/// The models and the price factor of a plan.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanSettings {
    /// Ids of models that the plan's credits pay for; only bought credits pay for others. Default: all models.
    pub models: Option<Vec<String>>,
    /// Factor on every price, in addition to `[price_factors]`. Default: 1.
    pub price_factor: Option<Factor>,
}

/// The settings of all plans, by name.
pub type PlanTerms = BTreeMap<Plan, PlanSettings>;

pub(super) fn includes(plans: &PlanTerms, plan: Plan, model: &str) -> bool {
    let models = plans.get(&plan).and_then(|terms| terms.models.as_ref());
    models.is_none_or(|models| models.iter().any(|id| id == model))
}

pub(super) fn factors(plans: &PlanTerms, plan: Plan, factors: &PriceFactors) -> PriceFactors {
    let own = plans.get(&plan).and_then(|terms| terms.price_factor);
    own.map_or_else(|| factors.clone(), |factor| factors.times(factor))
}

/// Returns the problems of the plans' settings: models that do not exist.
pub(super) fn problems(plans: &PlanTerms, models: &BTreeMap<String, ModelConfig>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (plan, terms) in plans {
        for (index, model) in terms.models.iter().flatten().enumerate() {
            if !models.contains_key(model) {
                problems.push(Problem {
                    setting: format!("plans.{}.models[{index}]", plan.name()),
                    what: format!("the model {model:?} does not exist"),
                });
            }
        }
    }
    problems
}
