//! `/admin/catalog/layer`: administrators change models, prices and providers while the gateway runs.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use weir_app::App;
use weir_app::layers::{LayerRequest, LayerStatus, invalid, read_summary};
use weir_catalog::layer::Layer;
use weir_catalog::layer::changes::CatalogChanges;
use weir_catalog::layer::store::{self, StoredLayer};
use weir_errors::ApiError;
use weir_identity::admin::AdminCaller;
use weir_request::query::{ListQuery, cut};
use weir_request::schemas::parameters::Limit;
use weir_request::small_body::SmallBody;

/// The tables of a catalog layer, with the fields of `[providers.NAME]` and `[models."ID"]` of the configuration file.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerContents {
    /// Providers that get no requests.
    #[serde(default)]
    pub providers: BTreeMap<String, LayerProvider>,
    /// Changed and new models.
    #[serde(default)]
    pub models: BTreeMap<String, BTreeMap<String, Value>>,
}

/// A provider in a layer. All its other fields belong to the configuration file.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerProvider {
    /// Must be `false`: without the field, the configuration file decides.
    #[serde(default)]
    pub enabled: bool,
}

/// The active version of the catalog layer.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LayerItem {
    /// The version's number; 0 before the first change.
    pub version: i64,
    /// The layer.
    #[schema(value_type = LayerContents)]
    pub contents: Map<String, Value>,
    /// The time of the change; null before the first one.
    pub created_at: Option<String>,
    /// The administrator who made it.
    pub created_by: Option<String>,
    /// The change in one line.
    pub summary: Option<String>,
    /// The version that the catalog of this node has.
    pub running_version: i64,
    /// The reason for which this node does not have the active version; null if it has.
    pub problem: Option<String>,
}

/// A version of the catalog layer.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LayerVersion {
    /// The version's number.
    pub version: i64,
    /// The time of the change.
    pub created_at: String,
    /// The administrator who made it.
    pub created_by: String,
    /// The change in one line.
    pub summary: String,
    /// The differences of the catalog at that time.
    pub changes: CatalogChanges,
}

/// A page of versions.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LayerList {
    /// Versions, newest first.
    pub layers: Vec<LayerVersion>,
    /// The `before` of the next page; null on the last page.
    pub next: Option<i64>,
}

/// The body that checks a layer.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerCheck {
    /// The complete layer.
    #[schema(value_type = LayerContents)]
    pub contents: Map<String, Value>,
}

/// The body that replaces the layer.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerReplacement {
    /// The version that the change is based on: the active one.
    #[schema(minimum = 0)]
    pub base_version: i64,
    /// The complete layer; an empty object removes all changes.
    #[schema(value_type = LayerContents)]
    pub contents: Map<String, Value>,
    /// The change in one line. Default: a summary of the differences.
    #[serde(default)]
    #[schema(max_length = 200)]
    pub summary: Option<String>,
    /// Whether prices may become 0.
    #[serde(default)]
    pub confirm_free: bool,
}

/// The body that restores a version.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerRestoration {
    /// The active version.
    #[schema(minimum = 0)]
    pub base_version: i64,
    /// The version whose contents become active again; 0 removes all changes.
    #[schema(minimum = 0)]
    pub version: i64,
    /// Whether prices may become 0.
    #[serde(default)]
    pub confirm_free: bool,
}

/// `GET /admin/catalog/layer`: returns the active version of the catalog layer, and its problem on this node.
#[utoipa::path(
    get, path = "/admin/catalog/layer", tag = "administration",
    responses((status = 200, body = LayerItem)),
)]
pub async fn get_catalog_layer(State(app): State<App>, _: AdminCaller) -> Json<LayerItem> {
    Json(item(app.layers.status().await))
}

/// `GET /admin/catalog/layers`: all versions of the catalog layer, newest first, with their differences.
#[utoipa::path(
    get, path = "/admin/catalog/layers", tag = "administration",
    params(
        Limit,
        ("before" = Option<i64>, Query, description = "The `next` of the previous page.", minimum = 0, maximum = 9223372036854775807_i64, nullable = false),
    ),
    responses((status = 200, body = LayerList)),
)]
pub async fn list_catalog_layers(
    State(app): State<App>,
    _: AdminCaller,
    mut query: ListQuery,
) -> Result<Json<LayerList>, ApiError> {
    let limit = query.limit()?;
    let before = query.number("before")?;
    query.finish()?;
    let mut layers = store::list(&app.database, before, limit + 1)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked for versions of the catalog"))?;
    let next = cut(&mut layers, limit, |layer| layer.version.to_string());
    Ok(Json(LayerList {
        layers: layers.into_iter().map(version).collect(),
        next: next.and_then(|next| next.parse().ok()),
    }))
}

/// `POST /admin/catalog/layer/check`: returns the changes that a layer would make to this node's catalog.
#[utoipa::path(
    post, path = "/admin/catalog/layer/check", tag = "administration",
    request_body = LayerCheck,
    responses((status = 200, body = CatalogChanges)),
)]
pub async fn check_catalog_layer(
    State(app): State<App>,
    _: AdminCaller,
    SmallBody(body): SmallBody<LayerCheck>,
) -> Result<Json<CatalogChanges>, ApiError> {
    let layer = Layer::read(body.contents).map_err(|problems| invalid(&problems))?;
    Ok(Json(app.layers.check(&layer).await?))
}

/// `PUT /admin/catalog/layer`: replaces the catalog layer on all nodes.
#[utoipa::path(
    put, path = "/admin/catalog/layer", tag = "administration",
    request_body = LayerReplacement,
    responses(
        (status = 200, description = "The new version.", body = LayerItem),
        (status = 409, description = "`CATALOG_LAYER_CHANGED`: another version than `base_version` is active; `active_version` has its number."),
    ),
)]
pub async fn replace_catalog_layer(
    State(app): State<App>,
    AdminCaller { actor, .. }: AdminCaller,
    SmallBody(body): SmallBody<LayerReplacement>,
) -> Result<Json<LayerItem>, ApiError> {
    let request = LayerRequest {
        base_version: body.base_version,
        summary: read_summary(body.summary)?,
        layer: Layer::read(body.contents).map_err(|problems| invalid(&problems))?,
        confirm_free: body.confirm_free,
    };
    app.layers.change(&actor, request).await?;
    Ok(Json(item(app.layers.status().await)))
}

/// `POST /admin/catalog/layer/restore`: makes the contents of an earlier version active again, as a new version.
#[utoipa::path(
    post, path = "/admin/catalog/layer/restore", tag = "administration",
    request_body = LayerRestoration,
    responses(
        (status = 200, description = "The new version.", body = LayerItem),
        (status = 404, description = "`NOT_FOUND`: no version has this number."),
        (status = 409, description = "`CATALOG_LAYER_CHANGED`: another version than `base_version` is active; `active_version` has its number."),
    ),
)]
pub async fn restore_catalog_layer(
    State(app): State<App>,
    AdminCaller { actor, .. }: AdminCaller,
    SmallBody(body): SmallBody<LayerRestoration>,
) -> Result<Json<LayerItem>, ApiError> {
    let LayerRestoration {
        base_version,
        version,
        confirm_free,
    } = body;
    let restored = app
        .layers
        .restore(&actor, base_version, version, confirm_free);
    restored.await?;
    Ok(Json(item(app.layers.status().await)))
}

fn item(status: LayerStatus) -> LayerItem {
    let newest = status.newest.as_ref();
    LayerItem {
        version: newest.map_or(0, |newest| newest.version),
        contents: status.layer.contents().clone(),
        created_at: newest.map(|newest| newest.created_at.iso()),
        created_by: newest.map(|newest| newest.created_by.clone()),
        summary: newest.map(|newest| newest.summary.clone()),
        running_version: status.running_version,
        problem: status.problem,
    }
}

fn version(stored: StoredLayer) -> LayerVersion {
    LayerVersion {
        version: stored.version,
        created_at: stored.created_at.iso(),
        created_by: stored.created_by,
        summary: stored.summary,
        // A later version of weir may have written another form.
        changes: serde_json::from_str(&stored.changes).unwrap_or_default(),
    }
}
