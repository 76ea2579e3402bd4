//! `GET /models`: the catalog for clients; `GET /admin/catalog`: the catalog for operators. Each dialect has its own
//! list of models.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRef, State};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_identity::admin::AdminCaller;
use weir_identity::endpoints::{Access, Endpoints, Tenancy};
use weir_identity::roles::Permission;
use weir_identity::{Caller, IdentityParts, handlers, limits};

use super::ModelItem;
use super::listing::CatalogListing;
use super::live::LiveCatalog;

/// Returns the clients' list of models.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<LiveCatalog>: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
{
    Endpoints::new().row(
        Access::User(Permission::ListModels),
        handlers!(list_models).tenancy(Tenancy::Common),
    )
}

/// Returns the administrators' endpoint of the catalog.
pub fn admin_endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<LiveCatalog>: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
{
    Endpoints::new().row(Access::Admin, handlers!(get_catalog))
}

/// `GET /models`: lists the models that the caller may use, with their limits, prices and capabilities.
#[utoipa::path(
    get, path = "/models", tag = "models",
    responses((status = 200, body = ModelList)),
)]
pub async fn list_models(State(catalog): State<Arc<LiveCatalog>>, caller: Caller) -> Json<Value> {
    let catalog = catalog.load();
    let factors = catalog.factors_of(caller.plan);
    let models: Vec<_> = catalog
        .models()
        .filter(|model| limits::may_use(caller.models(), &model.id))
        .filter_map(|model| {
            let in_plan = catalog.is_in_plan(caller.plan, &model.id);
            let preferred = model.preferred(&caller.data_limits)?;
            Some(model.item(preferred, &factors, in_plan))
        })
        .collect();
    Json(json!({ "models": models }))
}

/// `GET /admin/catalog`: returns the active catalog in the operators' view.
#[utoipa::path(
    get, path = "/admin/catalog", tag = "administration",
    responses((status = 200, body = CatalogListing)),
)]
pub async fn get_catalog(
    State(catalog): State<Arc<LiveCatalog>>,
    _: AdminCaller,
) -> Json<CatalogListing> {
    Json(CatalogListing::of(&catalog.load()))
}

/// The models that the caller may use.
#[derive(Serialize, ToSchema)]
pub struct ModelList<'a> {
    /// Models, by id.
    pub models: Vec<ModelItem<'a>>,
}
