//! The difference of two catalogs, field by field.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::config::InputUnit;
use crate::kinds::{self, KindOutput};
use crate::listing::units_of_price;
use crate::listing::{CatalogListing, ListedModel, ListedUpstream};

/// Maximum characters of a summary.
pub const SUMMARY_CHARACTERS: usize = 200;

/// Fields that a summary names.
const SUMMARY_FIELDS: usize = 2;

/// The differences between two catalogs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CatalogChanges {
    /// New models, with all their fields.
    pub added: Vec<ModelChange>,
    /// Ids of models that clients cannot request any more.
    pub removed: Vec<String>,
    /// Models with other fields.
    pub changed: Vec<ModelChange>,
    /// Providers that get no requests any more.
    pub disabled_providers: Vec<String>,
    /// Providers that get requests again.
    pub enabled_providers: Vec<String>,
    /// Prices that become 0 although the provider may charge for the unit, such as `a: upstreams[p/m].price.input`.
    pub free: Vec<String>,
}

/// A new or changed model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelChange {
    /// The model's id.
    pub model: String,
    /// The fields that differ.
    pub fields: Vec<FieldChange>,
}

/// A field of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    /// The field, such as `context_window` or `upstreams[p/m].price.input`.
    pub field: String,
    /// The earlier value; null if there is none.
    #[schema(value_type = Value)]
    pub old: Value,
    /// The new value; null if there is none.
    #[schema(value_type = Value)]
    pub new: Value,
    /// The unit of both values, such as `USD per million tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub unit: Option<String>,
}

/// A field's name, value and unit.
type Field = (String, Value, Option<String>);

impl CatalogChanges {
    /// Returns the differences of a catalog from an earlier one.
    pub fn between(before: &CatalogListing, after: &CatalogListing) -> Self {
        let mut changes = Self {
            removed: after.removed_since(before),
            ..Self::default()
        };
        for model in &after.models {
            let earlier = before.model(&model.id);
            let was_free = earlier.map(free_prices).unwrap_or_default();
            let free = free_prices(model).into_iter();
            let free = free.filter(|price| !was_free.contains(price));
            changes
                .free
                .extend(free.map(|price| format!("{}: {price}", model.id)));
            let change = ModelChange {
                model: model.id.clone(),
                fields: differences(&earlier.map(fields).unwrap_or_default(), &fields(model)),
            };
            match earlier {
                None => changes.added.push(change),
                Some(_) if change.fields.is_empty() => {}
                Some(_) => changes.changed.push(change),
            }
        }
        for provider in &after.providers {
            let mut earlier = before.providers.iter();
            let was_enabled =
                earlier.any(|earlier| earlier.name == provider.name && earlier.enabled);
            match (was_enabled, provider.enabled) {
                (true, false) => changes.disabled_providers.push(provider.name.clone()),
                (false, true) => changes.enabled_providers.push(provider.name.clone()),
                _ => {}
            }
        }
        changes
    }

    /// Returns whether the catalogs are equal.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the changes in one line.
    pub fn summary(&self) -> String {
        let ids = |models: &[ModelChange]| -> Vec<String> {
            models.iter().map(|change| change.model.clone()).collect()
        };
        let changed = match &*self.changed {
            [one] => vec![one.summary()],
            all => ids(all),
        };
        let parts = [
            ("disables the provider", self.disabled_providers.clone()),
            ("enables the provider", self.enabled_providers.clone()),
            ("adds", ids(&self.added)),
            ("removes", self.removed.clone()),
            ("changes", changed),
        ];
        let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<_> = parts
            .map(|(what, names)| format!("{what} {}", names.join(", ")))
            .collect();
        match parts.is_empty() {
            true => "changes no served model".to_owned(),
            false => cut(&parts.join("; ")),
        }
    }
}

impl ModelChange {
    fn summary(&self) -> String {
        let fields = self.fields.iter().take(SUMMARY_FIELDS).map(|change| {
            format!(
                "{} from {} to {}",
                change.field,
                shown(&change.old),
                shown(&change.new)
            )
        });
        let mut fields: Vec<_> = fields.collect();
        if let Some(more @ 1..) = self.fields.len().checked_sub(SUMMARY_FIELDS) {
            fields.push(format!("and {more} more"));
        }
        format!("{}: {}", self.model, fields.join(", "))
    }
}

/// Returns a value for people.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= SUMMARY_CHARACTERS {
        return text.to_owned();
    }
    let beginning: String = text.chars().take(SUMMARY_CHARACTERS - 1).collect();
    format!("{beginning}…")
}

fn differences(before: &[Field], after: &[Field]) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    let value = |fields: &[Field], name: &str| {
        let found = fields.iter().find(|(found, ..)| found == name);
        found.map_or(Value::Null, |(_, value, _)| value.clone())
    };
    // The list of upstreams says that one is gone; its prices would look like deleted ones.
    let is_of_gone_upstream = |name: &str| {
        let upstream = name.split_inclusive(']').next().unwrap_or_default();
        upstream.starts_with("upstreams[")
            && !after.iter().any(|(other, ..)| other.starts_with(upstream))
    };
    let gone = before
        .iter()
        .filter(|(name, ..)| after.iter().all(|(other, ..)| other != name))
        .filter(|(name, ..)| !is_of_gone_upstream(name));
    for (name, _, unit) in after.iter().chain(gone) {
        let (old, new) = (value(before, name), value(after, name));
        if old != new {
            changes.push(FieldChange {
                field: name.clone(),
                old,
                new,
                unit: unit.clone(),
            });
        }
    }
    changes
}

/// Returns a model's prices of 0, without those of units that its requests do not have.
fn free_prices(model: &ListedModel) -> Vec<String> {
    let has_output = match kinds::output(model.kind) {
        KindOutput::Text => true,
        KindOutput::Audio => model.input_unit == InputUnit::Token,
        KindOutput::Data => false,
    };
    let mut free = Vec::new();
    for upstream in &model.upstreams {
        let is_search = upstream.price["search"]
            .as_f64()
            .is_some_and(|usd| usd > 0.0);
        let has_unit = |name: &str| match name {
            "input" => !is_search,
            "output" => has_output,
            name => ["image", "characters", "minute"].contains(&name),
        };
        let setting = format!("upstreams[{}/{}].price", upstream.provider, upstream.model);
        let mut fields = Vec::new();
        prices(&setting, &upstream.price, &mut fields);
        let zeros = fields.into_iter().filter(|(name, value, _)| {
            let unit = name.rsplit('.').next().unwrap_or_default();
            value.as_f64() == Some(0.0) && has_unit(unit)
        });
        free.extend(zeros.map(|(name, ..)| name));
    }
    free
}

fn fields(model: &ListedModel) -> Vec<Field> {
    const TOKENS: Option<&str> = Some("tokens");
    let field = |name: &str, value: Value, unit: Option<&str>| {
        (name.to_owned(), value, unit.map(str::to_owned))
    };
    let of_input = match model.input_unit {
        InputUnit::Token => TOKENS,
        InputUnit::Character => Some("characters"),
        InputUnit::Second => Some("seconds"),
    };
    let name = |upstream: &ListedUpstream| format!("{}/{}", upstream.provider, upstream.model);
    let names: Vec<_> = model.upstreams.iter().map(name).collect();
    let mut fields = vec![
        field("name", json!(model.name), None),
        field("aliases", json!(model.aliases), None),
        field("ends_on", json!(model.ends_on), None),
        field("kind", json!(model.kind), None),
        field("context_window", json!(model.context_window), of_input),
        field("max_output_tokens", json!(model.max_output_tokens), TOKENS),
        field(
            "default_output_tokens",
            json!(model.default_output_tokens),
            TOKENS,
        ),
        field("max_image_tokens", json!(model.max_image_tokens), TOKENS),
        field("image_family", json!(model.image_family), None),
        field("supports_tools", json!(model.supports_tools), None),
        field("supports_vision", json!(model.supports_vision), None),
        field("supports_chat", json!(model.supports_chat), None),
        field("image_sizes", json!(model.image_sizes), None),
        field("image_qualities", json!(model.image_qualities), None),
        field("route", json!(model.route), None),
        field("prompt_caching", json!(model.prompt_caching), None),
        field("upstreams", json!(names), None),
    ];
    for (upstream, name) in model.upstreams.iter().zip(&names) {
        let setting = format!("upstreams[{name}]");
        fields.push((format!("{setting}.weight"), json!(upstream.weight), None));
        let stream_plain = json!(upstream.stream_plain);
        fields.push((format!("{setting}.stream_plain"), stream_plain, None));
        let price = format!("{setting}.price");
        prices(&price, &upstream.price, &mut fields);
    }
    fields
}

fn prices(setting: &str, price: &Value, fields: &mut Vec<Field>) {
    let mut named: Vec<_> = price.as_object().into_iter().flatten().collect();
    // A summary names the first fields only.
    named.sort_by_key(|(name, _)| !["input", "output"].contains(&name.as_str()));
    for (name, value) in named {
        let setting = format!("{setting}.{name}");
        if value.is_object() {
            prices(&setting, value, fields);
            continue;
        }
        let unit = match &**name {
            "input_tokens" => "tokens".to_owned(),
            name => format!("USD {}", units_of_price(name)),
        };
        fields.push((setting, value.clone(), Some(unit)));
    }
}
