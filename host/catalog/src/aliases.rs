//! Other names of models: `aliases` of `[models."ID"]`.

use std::collections::BTreeMap;

use super::config::ModelConfig;
use super::problem::Problem;

/// Maximum bytes of a model's id or alias.
const MAX_NAME_BYTES: usize = 256;

/// Returns whether a text is a valid id or alias of a model.
pub fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Returns the ids of models by alias, with the aliases' problems.
pub(super) fn by_alias(
    models: &BTreeMap<&String, &ModelConfig>,
) -> (BTreeMap<String, String>, Vec<Problem>) {
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    let mut problems = Vec::new();
    for (&id, model) in models {
        for (index, alias) in model.aliases.iter().enumerate() {
            let what = if !is_name(alias) {
                format!("an alias has 1 to {MAX_NAME_BYTES} bytes and no control characters")
            } else if models.contains_key(alias) {
                format!("{alias:?} is the id of a model")
            } else if let Some(other) = ids.get(alias) {
                format!("{alias:?} is an alias of the model {other:?}")
            } else {
                ids.insert(alias.clone(), id.clone());
                continue;
            };
            problems.push(Problem {
                setting: format!("models.{id:?}.aliases[{index}]"),
                what,
            });
        }
    }
    (ids, problems)
}
