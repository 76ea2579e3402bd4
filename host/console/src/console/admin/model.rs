//! A model: its prices, limits, upstreams and names, with forms that change them.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Map, Number, Value, json};
use weir_app::App;
use weir_app::layers::LayerStatus;
use weir_catalog::config::RouteBy;
use weir_errors::{ApiError, ErrorCode};

use super::catalog::{review, version_of};
use super::models::table_of;
use crate::console::form::{AdminForm, FormFields};
use crate::console::format;
use crate::console::frame::{Frame, MODELS};
use crate::console::session::ConsoleAdmin;

/// Prices of tokens: their fields and labels.
const TOKEN_PRICES: [(&str, &str); 9] = [
    ("input", "Million input tokens"),
    ("output", "Million output tokens"),
    ("cache_read", "Million tokens read from the cache"),
    ("cache_write_short", "Million tokens written to the cache"),
    ("cache_write_long", "Million tokens written for long"),
    ("audio_input", "Million input tokens of audio"),
    ("audio_output", "Million output tokens of audio"),
    ("image_output", "Million output tokens of images"),
    ("search", "Search of the web, or of documents"),
];

const UNIT_PRICES: [(&str, &str); 3] = [
    ("image", "Image"),
    ("characters", "Million characters"),
    ("minute", "Minute"),
];

/// Fields with numbers: their names and labels.
const NUMBERS: [(&str, &str); 4] = [
    ("context_window", "Context window, in tokens"),
    ("max_output_tokens", "Highest output limit, in tokens"),
    (
        "default_output_tokens",
        "Output limit of requests without one, in tokens",
    ),
    ("max_image_tokens", "Tokens of an input image, at most"),
];

/// Fields with a yes or no.
const FLAGS: [(&str, &str); 2] = [
    ("supports_tools", "Can call tools"),
    ("supports_vision", "Accepts images"),
];

/// The prefix of a price's field that belongs to the model, rather than to an upstream.
const OF_MODEL: &str = "model";

#[derive(Template)]
#[template(path = "console/admin/model.html")]
struct ModelPage {
    frame: Frame,
    id: String,
    base_version: i64,
    is_enabled: bool,
    is_served: bool,
    prices: Vec<PriceTable>,
    name: String,
    aliases: String,
    ends_on: String,
    numbers: Vec<InputField>,
    flags: Vec<(&'static str, &'static str, bool)>,
    routes: Vec<(&'static str, bool)>,
    upstreams: Vec<UpstreamRow>,
    providers: Vec<String>,
}

/// A form's part with the prices of a model, or of one of its upstreams.
struct PriceTable {
    title: String,
    fields: Vec<InputField>,
}

/// A field with a number.
struct InputField {
    name: String,
    label: &'static str,
    value: String,
}

/// An upstream; the last row is empty, for another one.
struct UpstreamRow {
    index: usize,
    provider: String,
    model: String,
    weight: String,
}

/// `GET /console/admin/models/{model}`
pub(super) async fn show_model(
    State(app): State<App>,
    Path(id): Path<String>,
    admin: ConsoleAdmin,
) -> Result<Response, ApiError> {
    let status = app.layers.status().await;
    let catalog = app.catalog.load();
    let model = model_of(&status, &id)?;
    let text = |field: &str| shown(&model[field]);
    let upstreams = upstreams(model);
    let rows = upstreams.iter().chain([&Value::Null]).enumerate();
    let mut prices = Vec::new();
    if upstreams.iter().any(|upstream| upstream["price"].is_null()) {
        let title = "USD for each".to_owned();
        prices.push(price_table(title, OF_MODEL, &model["price"]));
    }
    for (index, upstream) in upstreams.iter().enumerate() {
        if !upstream["price"].is_null() {
            let title = format!("USD at {} for each", shown(&upstream["provider"]));
            prices.push(price_table(title, &index.to_string(), &upstream["price"]));
        }
    }
    let aliases = model["aliases"].as_array().into_iter().flatten();
    let route = model["route"].as_str().unwrap_or(RouteBy::ALL[0].0);
    let page = ModelPage {
        frame: admin.user.frame(&*id, MODELS),
        base_version: version_of(&status),
        is_enabled: model["enabled"] != false,
        is_served: catalog.model(&id).is_some(),
        prices,
        name: text("name"),
        aliases: aliases.map(shown).collect::<Vec<_>>().join(", "),
        ends_on: text("ends_on"),
        numbers: NUMBERS
            .map(|(name, label)| InputField {
                name: name.to_owned(),
                label,
                value: text(name),
            })
            .into(),
        flags: FLAGS
            .map(|(name, label)| (name, label, model[name] == true))
            .into(),
        routes: RouteBy::ALL.map(|(name, _)| (name, name == route)).into(),
        upstreams: rows
            .map(|(index, upstream)| UpstreamRow {
                index,
                provider: shown(&upstream["provider"]),
                model: shown(&upstream["model"]),
                weight: shown(&upstream["weight"]),
            })
            .collect(),
        providers: catalog.provider_names().map(str::to_owned).collect(),
        id,
    };
    admin.user.show(&page)
}

/// `POST /console/admin/models/{model}`: shows the effect of one of the page's forms.
pub(super) async fn edit_model(
    State(app): State<App>,
    Path(id): Path<String>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let page = format!("/console/admin/models/{}", format::segment(&id));
    let reviewed = async {
        let status = app.layers.status().await;
        let model = model_of(&status, &id)?;
        let changed = match fields.text("action") {
            "price" => changed_prices(model, &fields)?,
            "model" => changed_fields(model, &fields)?,
            "disable" => json!({ "enabled": false }),
            _ => json!({ "enabled": true }),
        };
        let mut contents = status.layer.contents().clone();
        let models = table_of(&mut contents, "models");
        let own = models.entry(&*id).or_insert_with(|| Map::new().into());
        weir_catalog::layer::merge(own, changed);
        review(&app, &admin, &fields, contents, &page).await
    };
    match reviewed.await {
        Err(error) => admin.done(&page, Err::<(), _>(error), ""),
        shown => shown,
    }
}

/// Returns the settings of a model, with the newest layer.
fn model_of<'a>(status: &'a LayerStatus, id: &str) -> Result<&'a Value, ApiError> {
    let unknown = || ApiError::new(ErrorCode::NotFound, "No model has this id.");
    status.models.get(id).ok_or_else(unknown)
}

/// Returns the upstreams of a model, without the options that belong to the configuration file.
fn upstreams(model: &Value) -> Vec<Value> {
    let upstreams = model["upstreams"].as_array().cloned();
    let mut upstreams = upstreams.unwrap_or_default();
    for upstream in upstreams.iter_mut().filter_map(Value::as_object_mut) {
        upstream.remove("options");
    }
    upstreams
}

fn price_table(title: String, owner: &str, price: &Value) -> PriceTable {
    let is_of_units = UNIT_PRICES.iter().any(|(name, _)| !price[*name].is_null());
    let fields: &[_] = match is_of_units {
        true => &UNIT_PRICES,
        false => &TOKEN_PRICES,
    };
    let is_shown = |name: &str| !is_of_units || !price[name].is_null();
    let fields = fields.iter().filter(|(name, _)| is_shown(name));
    PriceTable {
        title,
        fields: fields
            .map(|(name, label)| InputField {
                name: format!("price_{owner}_{name}"),
                label,
                value: shown(&price[*name]),
            })
            .collect(),
    }
}

fn changed_prices(model: &Value, fields: &FormFields) -> Result<Value, ApiError> {
    let names = || {
        TOKEN_PRICES
            .iter()
            .chain(&UNIT_PRICES)
            .map(|(name, _)| *name)
    };
    let mut changed = Map::new();
    let mut price = Map::new();
    for name in names() {
        let field = format!("price_{OF_MODEL}_{name}");
        let old = &model["price"][name];
        match number(fields, &field)? {
            Some(new) if is_other(old, &new) => {
                price.insert(name.to_owned(), new);
            }
            None if fields.has(&field) && !old.is_null() => {
                let what = "Enter a price: a form can change this price, but not remove it.";
                return Err(ApiError::invalid_request(field, what));
            }
            _ => {}
        }
    }
    if !price.is_empty() {
        changed.insert("price".to_owned(), price.into());
    }
    let before = upstreams(model);
    let mut after = before.clone();
    for (index, upstream) in after.iter_mut().enumerate() {
        let Some(price) = upstream.get_mut("price").and_then(Value::as_object_mut) else {
            continue;
        };
        for name in names() {
            let field = format!("price_{index}_{name}");
            match number(fields, &field)? {
                Some(new) if is_other(price.get(name).unwrap_or(&Value::Null), &new) => {
                    price.insert(name.to_owned(), new);
                }
                None if fields.has(&field) => {
                    price.remove(name);
                }
                _ => {}
            }
        }
    }
    if after != before {
        changed.insert("upstreams".to_owned(), after.into());
    }
    Ok(changed.into())
}

fn changed_fields(model: &Value, fields: &FormFields) -> Result<Value, ApiError> {
    let mut changed = Map::new();
    let mut change = |name: &str, new: Value, old: &Value| {
        if is_other(old, &new) {
            changed.insert(name.to_owned(), new);
        }
    };
    for name in ["name", "ends_on"] {
        match fields.filled(name) {
            Some(text) => change(name, text.into(), &model[name]),
            None if model[name].is_null() => {}
            None => {
                let what = "Enter a value: a form can change this field, but not remove it.";
                return Err(ApiError::invalid_request(name, what));
            }
        }
    }
    let aliases = fields.text("aliases").split(',').map(str::trim);
    let aliases: Vec<_> = aliases.filter(|alias| !alias.is_empty()).collect();
    if !(aliases.is_empty() && model["aliases"].is_null()) {
        change("aliases", json!(aliases), &model["aliases"]);
    }
    for (name, _) in NUMBERS {
        if let Some(new) = number(fields, name)? {
            change(name, new, &model[name]);
        }
    }
    for (name, _) in FLAGS {
        let is_checked = fields.is_checked(name);
        if is_checked != (model[name] == true) {
            change(name, is_checked.into(), &model[name]);
        }
    }
    let route = model["route"].as_str().unwrap_or(RouteBy::ALL[0].0);
    if fields.text("route") != route {
        change("route", fields.text("route").into(), &model["route"]);
    }
    let before = upstreams(model);
    let mut places = Vec::new();
    for (index, earlier) in before.iter().chain([&json!({})]).enumerate() {
        let field = |name: &str| format!("{name}_{index}");
        let Some(provider) = fields.filled(&field("provider")) else {
            continue;
        };
        let mut upstream = earlier.as_object().cloned().unwrap_or_default();
        upstream.insert("provider".to_owned(), provider.into());
        let model = fields.filled(&field("upstream_model")).map(Value::from);
        let weight = number(fields, &field("weight"))?;
        for (name, value) in [("model", model), ("weight", weight)] {
            match value {
                Some(value) => upstream.insert(name.to_owned(), value),
                None => upstream.remove(name),
            };
        }
        let place = number(fields, &field("place"))?.and_then(|place| place.as_i64());
        places.push((place.unwrap_or(i64::MAX), Value::Object(upstream)));
    }
    places.sort_by_key(|(place, _)| *place);
    let after: Vec<_> = places.into_iter().map(|(_, upstream)| upstream).collect();
    if after != before {
        change("upstreams", after.into(), &Value::Null);
    }
    Ok(changed.into())
}

/// Reads a field with a number; `None` if it is empty.
fn number(fields: &FormFields, name: &str) -> Result<Option<Value>, ApiError> {
    let Some(text) = fields.filled(name) else {
        return Ok(None);
    };
    let number: Result<Number, _> = serde_json::from_str(text);
    let what = "Enter a number, such as 2.5.";
    let number = number.map_err(|_| ApiError::invalid_request(name, what))?;
    Ok(Some(number.into()))
}

/// Returns whether two values differ; 1 and 1.0 are equal.
fn is_other(old: &Value, new: &Value) -> bool {
    match (old.as_f64(), new.as_f64()) {
        (Some(old), Some(new)) => old != new,
        _ => old != new,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
