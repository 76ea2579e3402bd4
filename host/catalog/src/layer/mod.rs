//! The catalog layer: changes of the catalog that administrators make while the gateway runs.
//!
//! A layer is a partial configuration with the names and the structure of `[providers]` and `[models]`. weir merges it
//! over the file and the environment: tables field by field, lists as a whole. Each change is a new version in the
//! database ([`store`]), and the newest version is active. `app/layers.rs` applies it on each node. [`changes`] has the
//! difference of two catalogs.
//!
//! **Invariant:** an administrator does not get the rights of the file's owner. A layer can change, add and disable models,
//! and disable providers. It cannot change any other field of a provider, nor the options of an adapter, because options
//! can select a destination. [`Layer::read`] is the only way to make a layer.
//! **Invariant:** an entry of `upstreams` in a layer has the options of the configuration's entry with the same provider
//! and model.
//! **Invariant:** a version is never changed or deleted. To undo a change, weir adds a version with earlier contents.
//! **Invariant:** no charge changes later: a request uses one catalog ([`live`](super::live)), and the ledger stores
//! amounts, never prices.
//!
//! To allow layers another field, change [`Layer::read`].

pub mod changes;
pub mod store;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::config::ModelConfig;
use super::problem::Problem;

/// Maximum bytes of a layer, as JSON.
pub const MAX_BYTES: usize = 60 << 10;

/// A valid layer, as far as that does not depend on the configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer(Map<String, Value>);

impl Layer {
    /// Reads a layer.
    ///
    /// # Errors
    ///
    /// Each field that a layer cannot have.
    pub fn read(contents: Map<String, Value>) -> Result<Self, Vec<Problem>> {
        let mut problems = Problems(Vec::new());
        for (table, entries) in &contents {
            match (&**table, entries) {
                ("providers", Value::Object(providers)) => {
                    for (name, provider) in providers {
                        problems.of_provider(name, provider);
                    }
                }
                ("models", Value::Object(models)) => {
                    for (id, model) in models {
                        problems.of_model(id, model);
                    }
                }
                ("providers" | "models", _) => problems.add(table.clone(), "must be a table"),
                _ => problems.add(table.clone(), OF_THE_FILE),
            }
        }
        if Value::Object(contents.clone()).to_string().len() > MAX_BYTES {
            problems.add(
                "models".to_owned(),
                format!("and `providers` have more than {MAX_BYTES} bytes together"),
            );
        }
        match problems.0.is_empty() {
            true => Ok(Self(contents)),
            false => Err(problems.0),
        }
    }

    /// Returns the layer as JSON.
    pub fn contents(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Returns whether the layer changes nothing.
    pub fn is_empty(&self) -> bool {
        self.models().next().is_none() && self.disabled_providers().next().is_none()
    }

    /// Returns the fields of models, by their ids.
    pub fn models(&self) -> impl Iterator<Item = (&String, &Value)> {
        table(&self.0, "models")
    }

    pub fn disabled_providers(&self) -> impl Iterator<Item = &String> {
        let providers = table(&self.0, "providers");
        providers.filter_map(|(name, provider)| (provider["enabled"] == false).then_some(name))
    }

    /// Merges the layer over the models of a configuration.
    pub fn merge_over(&self, models: &mut Map<String, Value>) {
        for (id, fields) in self.models() {
            let mut fields = fields.clone();
            let configured = models.entry(id).or_insert_with(|| Map::new().into());
            if let Some(upstreams) = fields.get_mut("upstreams").and_then(Value::as_array_mut) {
                for upstream in upstreams {
                    inherit_options(upstream, id, &configured["upstreams"]);
                }
            }
            merge(configured, fields);
        }
    }
}

/// The end of a sentence about a field that only the configuration file has.
const OF_THE_FILE: &str = "belongs to the configuration file";

struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, setting: String, what: impl Into<String>) {
        self.0.push(Problem {
            setting,
            what: what.into(),
        });
    }

    fn of_provider(&mut self, name: &str, provider: &Value) {
        let Value::Object(fields) = provider else {
            return self.add(format!("providers.{name}"), "must be a table");
        };
        for (field, value) in fields {
            let setting = format!("providers.{name}.{field}");
            match (&**field, value) {
                ("enabled", Value::Bool(false)) => {}
                ("enabled", Value::Bool(true)) => self.add(
                    setting,
                    format!("{OF_THE_FILE}, except `false`: leave it out to enable the provider"),
                ),
                ("enabled", _) => self.add(setting, "must be `false`"),
                _ => self.add(setting, OF_THE_FILE),
            }
        }
    }

    fn of_model(&mut self, id: &str, model: &Value) {
        let setting = format!("models.{id:?}");
        let Value::Object(fields) = model else {
            return self.add(setting, "must be a table");
        };
        let upstreams = fields.get("upstreams").and_then(Value::as_array);
        for (index, upstream) in upstreams.into_iter().flatten().enumerate() {
            if upstream.get("options").is_some() {
                self.add(format!("{setting}.upstreams[{index}].options"), OF_THE_FILE);
            }
        }
        self.nulls(&setting, model);
    }

    /// Rejects nulls, which TOML does not have.
    fn nulls(&mut self, setting: &str, value: &Value) {
        match value {
            Value::Null => self.add(setting.to_owned(), "is null: leave the field out"),
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.nulls(&format!("{setting}.{name}"), field);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.nulls(&format!("{setting}[{index}]"), item);
                }
            }
            _ => {}
        }
    }
}

/// Returns the entries of a table of a layer.
fn table<'a>(
    contents: &'a Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let table = contents.get(name).and_then(Value::as_object);
    table.into_iter().flatten()
}

/// Gives an upstream of a layer the options of the same upstream in the configuration.
fn inherit_options(upstream: &mut Value, id: &str, configured: &Value) {
    let name = |upstream: &Value| {
        let model = upstream["model"].as_str().unwrap_or(id).to_owned();
        (upstream["provider"].clone(), model)
    };
    let mut configured = configured.as_array().into_iter().flatten();
    let same = configured.find(|configured| name(configured) == name(upstream));
    if let (Some(options), Value::Object(upstream)) =
        (same.and_then(|same| same.get("options")), upstream)
    {
        upstream.insert("options".to_owned(), options.clone());
    }
}

/// Merges a value over another: tables field by field, all other values as a whole.
pub fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                match under.get_mut(&name) {
                    Some(under) => merge(under, value),
                    None => {
                        under.insert(name, value);
                    }
                }
            }
        }
        (under, over) => *under = over,
    }
}

/// Reads merged models.
///
/// # Errors
///
/// The first invalid field of each model.
pub fn read_models(
    models: Map<String, Value>,
) -> Result<BTreeMap<String, ModelConfig>, Vec<Problem>> {
    let mut read = BTreeMap::new();
    let mut problems = Vec::new();
    for (id, fields) in models {
        match serde_path_to_error::deserialize(fields) {
            Ok(model) => {
                read.insert(id, model);
            }
            Err(error) => problems.push(problem(&id, &error)),
        }
    }
    match problems.is_empty() {
        true => Ok(read),
        false => Err(problems),
    }
}

fn problem(id: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let mut setting = format!("models.{id:?}");
    let path = error.path().to_string();
    if path != "." {
        setting = format!("{setting}.{path}");
    }
    let what = error.inner().to_string();
    // serde names these fields only in its message.
    for (beginning, what) in [
        ("missing field `", "is missing"),
        ("unknown field `", "is not a setting"),
    ] {
        if let Some((field, _)) = error
            .inner()
            .to_string()
            .strip_prefix(beginning)
            .and_then(|rest| rest.split_once('`'))
        {
            let is_named = setting.ends_with(&format!(".{field}"));
            return Problem {
                setting: match is_named {
                    true => setting,
                    false => format!("{setting}.{field}"),
                },
                what: what.to_owned(),
            };
        }
    }
    Problem {
        setting,
        what: format!("is invalid: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(contents: Value) -> Result<Layer, Vec<Problem>> {
        let Value::Object(contents) = contents else {
            panic!("not an object");
        };
        Layer::read(contents)
    }

    #[test]
    fn a_layer_has_no_field_that_selects_a_destination_or_a_credential() {
        for (contents, setting) in [
            (json!({ "listen": "0.0.0.0:80" }), "listen"),
            (
                json!({ "providers": { "p": { "base_url": "https://evil.example" } } }),
                "providers.p.base_url",
            ),
            (
                json!({ "providers": { "p": { "credential": { "env": "HOME" } } } }),
                "providers.p.credential",
            ),
            (
                json!({ "providers": { "p": { "adapter": "demo" } } }),
                "providers.p.adapter",
            ),
            (
                json!({ "providers": { "p": { "options": {} } } }),
                "providers.p.options",
            ),
            (
                json!({ "providers": { "p": { "enabled": true } } }),
                "providers.p.enabled",
            ),
            (json!({ "providers": [] }), "providers"),
            (json!({ "models": { "m": 1 } }), "models.\"m\""),
            (
                json!({ "models": { "m": { "upstreams": [{ "provider": "p", "options": {} }] } } }),
                "models.\"m\".upstreams[0].options",
            ),
            (
                json!({ "models": { "m": { "price": { "input": null } } } }),
                "models.\"m\".price.input",
            ),
        ] {
            let problems = read(contents.clone()).expect_err("a problem");
            assert_eq!(problems[0].setting, setting, "{contents}");
        }
        let layer = read(json!({ "providers": { "p": { "enabled": false }, "q": {} } }));
        let layer = layer.expect("a layer");
        assert!(layer.disabled_providers().eq(["p"]));
        assert!(read(json!({ "models": {} })).is_ok_and(|layer| layer.is_empty()));
    }

    #[test]
    fn tables_merge_by_field_and_lists_as_a_whole_with_the_options_of_the_file() {
        let mut models = json!({ "m": {
            "context_window": 10,
            "price": { "input": 1, "output": 2 },
            "upstreams": [
                { "provider": "p", "options": { "api": "a" } },
                { "provider": "q", "model": "theirs", "weight": 3, "options": { "api": "b" } },
            ],
        } });
        let layer = read(json!({ "models": { "m": {
            "price": { "input": 5 },
            "upstreams": [{ "provider": "q", "model": "theirs" }, { "provider": "q" }, { "provider": "p", "model": "m" }],
        } } }));
        let models = models.as_object_mut().expect("an object");
        layer.expect("a layer").merge_over(models);
        assert_eq!(
            models["m"],
            json!({
                "context_window": 10,
                "price": { "input": 5, "output": 2 },
                "upstreams": [
                    { "provider": "q", "model": "theirs", "options": { "api": "b" } },
                    { "provider": "q" },
                    { "provider": "p", "model": "m", "options": { "api": "a" } },
                ],
            })
        );
    }

    #[test]
    fn errors_name_the_field() {
        let base = json!({ "context_window": 1, "upstreams": [{ "provider": "p" }] });
        for (over, setting, what) in [
            (
                json!({ "price": { "input": -1 } }),
                "models.\"m\".price.input",
                "price in USD",
            ),
            (
                json!({ "prize": 1 }),
                "models.\"m\".prize",
                "is not a setting",
            ),
            (
                json!({ "upstreams": [{ "weight": 1 }] }),
                "models.\"m\".upstreams[0].provider",
                "is missing",
            ),
            (
                json!({ "upstreams": [{ "provider": "p", "weight": 0 }] }),
                "models.\"m\".upstreams[0].weight",
                "nonzero",
            ),
        ] {
            let mut model = base.clone();
            merge(&mut model, over);
            let models = Map::from_iter([("m".to_owned(), model)]);
            let problems = read_models(models).expect_err("a problem");
            assert_eq!(problems[0].setting, setting);
            assert!(problems[0].what.contains(what), "{problems:?}");
        }
    }
}
