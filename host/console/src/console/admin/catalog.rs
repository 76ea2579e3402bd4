//! Changes of the catalog: the review of each change, the history, and the layer as text.

use askama::Template;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value};
use weir_app::App;
use weir_app::layers::{LayerError, LayerRequest, LayerStatus, invalid, read_summary};
use weir_catalog::layer::Layer;
use weir_catalog::layer::changes::{
    CatalogChanges, FieldChange, ModelChange, SUMMARY_CHARACTERS, shown,
};
use weir_errors::ApiError;
use weir_request::query::ListQuery;
use weir_storage::clock::Millis;

use super::ListRequest;
use super::people::People;
use crate::admin::catalog_layer::{self, LayerVersion};
use crate::console::form::{AdminForm, FormFields};
use crate::console::format::{self, DisplayTime};
use crate::console::frame::{Flash, Frame, MODELS};
use crate::console::session::ConsoleAdmin;

/// The page with the layer as text.
const TEXT: &str = "/console/admin/catalog";

/// The page with all versions.
pub(super) const HISTORY: &str = "/console/admin/catalog/history";

#[derive(Template)]
#[template(path = "console/admin/catalog.html")]
struct LayerPage {
    frame: Frame,
    base_version: i64,
    text: String,
    problem: Option<String>,
    refused: Option<String>,
}

#[derive(Template)]
#[template(path = "console/admin/catalog_review.html")]
struct ReviewPage {
    frame: Frame,
    base_version: i64,
    contents: String,
    changes: CatalogChanges,
    summary: String,
    summary_characters: usize,
    back: String,
}

#[derive(Template)]
#[template(path = "console/admin/catalog_history.html")]
struct HistoryPage {
    frame: Frame,
    versions: Vec<LayerVersion>,
    people: People,
    active: i64,
    problem: Option<String>,
    next: Option<String>,
    now: Millis,
}

/// `GET /console/admin/catalog`: the complete layer as TOML.
pub(super) async fn show_layer(
    State(app): State<App>,
    admin: ConsoleAdmin,
) -> Result<Response, ApiError> {
    let status = app.layers.status().await;
    let page = LayerPage {
        frame: admin.user.frame("Catalog changes", MODELS),
        base_version: version_of(&status),
        text: toml::to_string_pretty(status.layer.contents()).unwrap_or_default(),
        problem: status.problem,
        refused: None,
    };
    admin.user.show(&page)
}

/// `POST /console/admin/catalog`: shows the effect of another text.
pub(super) async fn review_layer(
    State(app): State<App>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let text = fields.text("text");
    let reviewed = async {
        let contents: Map<String, Value> = toml::from_str(text).map_err(|error| {
            let what = format!("The text is no valid TOML: {error}");
            ApiError::invalid_request("text", what)
        })?;
        review(&app, &admin, &fields, contents, TEXT).await
    };
    match reviewed.await {
        Err(error) if error.status().is_client_error() => {
            let status = app.layers.status().await;
            let page = LayerPage {
                frame: admin.user.frame("Catalog changes", MODELS),
                base_version: base_version(&fields),
                text: text.to_owned(),
                problem: status.problem,
                refused: Some(error.message().to_owned()),
            };
            admin.user.show_refused(error, &page)
        }
        outcome => outcome,
    }
}

/// Shows the effect of a layer, with a button that applies it.
///
/// # Errors
///
/// 400 with the problems of the layer, 409 if the form is of an earlier version.
pub(super) async fn review(
    app: &App,
    admin: &ConsoleAdmin,
    fields: &FormFields,
    contents: Map<String, Value>,
    back: &str,
) -> Result<Response, ApiError> {
    let active = version_of(&app.layers.status().await);
    if base_version(fields) != active {
        return Err(LayerError::Changed { active }.into());
    }
    let layer = Layer::read(contents).map_err(|problems| invalid(&problems))?;
    let changes = app.layers.check(&layer).await?;
    admin.user.show(&ReviewPage {
        frame: admin.user.frame("Review the change", MODELS),
        base_version: active,
        contents: Value::Object(layer.contents().clone()).to_string(),
        summary: changes.summary(),
        summary_characters: SUMMARY_CHARACTERS,
        changes,
        back: back.to_owned(),
    })
}

/// `POST /console/admin/catalog/apply`: applies a reviewed change.
pub(super) async fn apply_layer(
    State(app): State<App>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let applied = async {
        let contents = serde_json::from_str(fields.text("contents")).map_err(|_| {
            ApiError::invalid_request("contents", "The form is not from the review of a change.")
        })?;
        let request = LayerRequest {
            base_version: base_version(&fields),
            layer: Layer::read(contents).map_err(|problems| invalid(&problems))?,
            summary: read_summary(fields.filled("summary").map(str::to_owned))?,
            confirm_free: fields.is_checked("confirm_free"),
        };
        let stored = app.layers.change(admin.actor(), request).await?;
        Ok(stored.version)
    };
    done(&admin, applied.await)
}

/// `POST /console/admin/catalog/restore`: makes the contents of an earlier version active again, or shows the review of a change
/// that needs a confirmation.
pub(super) async fn restore_layer(
    State(app): State<App>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let version = fields.text("version").parse().unwrap_or(-1);
    let restored = app
        .layers
        .restore(admin.actor(), base_version(&fields), version, false);
    match restored.await {
        Err(LayerError::Free(_)) => {
            let contents = app.layers.find(version).await?.contents().clone();
            review(&app, &admin, &fields, contents, HISTORY).await
        }
        restored => done(
            &admin,
            restored
                .map(|stored| stored.version)
                .map_err(ApiError::from),
        ),
    }
}

/// `GET /console/admin/catalog/history`: all versions.
pub(super) async fn show_history(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, [], "before")?;
    let (state, caller) = (State(app.clone()), admin.caller());
    let listed = catalog_layer::list_catalog_layers(state, caller, asked.query());
    let Json(list) = listed.await?;
    let status = app.layers.status().await;
    let actors = list.layers.iter().map(|version| &*version.created_by);
    let people = People::of(&app, actors).await?;
    admin.user.show(&HistoryPage {
        people,
        frame: admin.user.frame("Catalog history", MODELS),
        versions: list.layers,
        active: version_of(&status),
        problem: status.problem,
        next: asked.next(HISTORY, list.next.map(|next| next.to_string())),
        now: app.clock.now(),
    })
}

/// Returns the number of the newest version; 0 before the first change.
pub(super) fn version_of(status: &LayerStatus) -> i64 {
    status.newest.as_ref().map_or(0, |newest| newest.version)
}

fn base_version(fields: &FormFields) -> i64 {
    fields.text("base_version").parse().unwrap_or(-1)
}

fn done(admin: &ConsoleAdmin, outcome: Result<i64, ApiError>) -> Result<Response, ApiError> {
    match outcome {
        Ok(version) => {
            let text = format!("Version {version} is active. Other nodes follow within a second.");
            Ok(admin.user.go(HISTORY, Flash::good(text)))
        }
        error => admin.done(HISTORY, error, ""),
    }
}

fn titled(changes: &CatalogChanges) -> Vec<(&'static str, &ModelChange)> {
    let added = changes.added.iter().map(|model| ("New model", model));
    let changed = changes.changed.iter().map(|model| ("Changed model", model));
    added.chain(changed).collect()
}

fn with_unit(value: &Value, change: &FieldChange) -> String {
    match (&change.unit, value) {
        (Some(unit), Value::Number(_)) => format!("{} {unit}", shown(value)),
        _ => shown(value),
    }
}
