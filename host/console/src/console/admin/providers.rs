//! A provider: its models, and whether requests go to it.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::json;
use weir_app::App;
use weir_catalog::listing::{CatalogListing, ListedProvider};
use weir_errors::{ApiError, ErrorCode};

use super::catalog::{review, version_of};
use super::models::table_of;
use crate::console::form::AdminForm;
use crate::console::format;
use crate::console::frame::{Frame, MODELS};
use crate::console::session::ConsoleAdmin;

#[derive(Template)]
#[template(path = "console/admin/provider.html")]
struct ProviderPage {
    frame: Frame,
    provider: ListedProvider,
    base_version: i64,
    /// Whether the catalog layer disables it, rather than the configuration file.
    is_in_layer: bool,
    left_out: Option<String>,
    models: Vec<ServedModel>,
}

struct ServedModel {
    id: String,
    /// Other providers that get requests.
    others: Vec<String>,
}

/// `GET /console/admin/providers/{provider}`
pub(super) async fn show_provider(
    State(app): State<App>,
    Path(name): Path<String>,
    admin: ConsoleAdmin,
) -> Result<Response, ApiError> {
    let listing = CatalogListing::of(&app.catalog.load());
    let status = app.layers.status().await;
    let mut providers = listing.providers.iter();
    let provider = providers.find(|provider| provider.name == name);
    let provider = provider.cloned().ok_or_else(unknown)?;
    let is_out = |name: &str| {
        let mut providers = listing.providers.iter();
        let mut left_out = listing.left_out.iter();
        !providers.any(|provider| provider.name == name && provider.enabled)
            || left_out.any(|left_out| left_out.provider == name)
    };
    let models = status.models.iter().filter_map(|(id, model)| {
        let upstreams = model["upstreams"].as_array().into_iter().flatten();
        let (own, others): (Vec<_>, Vec<_>) = upstreams
            .filter_map(|upstream| upstream["provider"].as_str())
            .partition(|other| *other == name);
        let is_served = !own.is_empty() && model["enabled"] != false;
        let others = others.into_iter().filter(|other| !is_out(other));
        is_served.then(|| ServedModel {
            id: id.clone(),
            others: others.map(str::to_owned).collect(),
        })
    });
    let mut left_out = listing.left_out.iter();
    let left_out = left_out.find(|left_out| left_out.provider == name);
    admin.user.show(&ProviderPage {
        frame: admin.user.frame(&*name, MODELS),
        base_version: version_of(&status),
        is_in_layer: status
            .layer
            .disabled_providers()
            .any(|disabled| *disabled == name),
        left_out: left_out.map(|left_out| left_out.why.clone()),
        models: models.collect(),
        provider,
    })
}

/// `POST /console/admin/providers/{provider}`: shows the effect of taking the provider out, or of putting it back.
pub(super) async fn edit_provider(
    State(app): State<App>,
    Path(name): Path<String>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let status = app.layers.status().await;
    let mut contents = status.layer.contents().clone();
    let providers = table_of(&mut contents, "providers");
    match fields.text("action") {
        "enable" => {
            providers.remove(&name);
        }
        _ => {
            providers.insert(name.clone(), json!({ "enabled": false }));
        }
    }
    if providers.is_empty() {
        contents.remove("providers");
    }
    let page = format!("/console/admin/providers/{}", format::segment(&name));
    match review(&app, &admin, &fields, contents, &page).await {
        Err(error) => admin.done(&page, Err::<(), _>(error), ""),
        shown => shown,
    }
}

fn unknown() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "No provider has this name.")
}
