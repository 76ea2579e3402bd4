//! The routes of SCIM 2.0, below `/scim/v2`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, FromRequestParts, Path};
use axum::routing::{any, get};
use http::request::Parts;

use super::discovery;
use super::error::ScimError;
use super::resources::{self, Base, Body, DirectoryRequest};
use super::{Directory, Kind};
use crate::IdentityParts;

impl<S> FromRequestParts<S> for DirectoryRequest
where
    Arc<IdentityParts>: FromRef<S>,
    S: Sync,
{
    type Rejection = ScimError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ScimError> {
        let directory = Directory::from_request_parts(parts, state).await?;
        Ok(Self {
            base: Base::new(&directory.identity, &parts.headers),
            directory,
            uri: parts.uri.clone(),
        })
    }
}

/// Returns the routes.
pub fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<IdentityParts>: FromRef<S>,
{
    let routes = Router::new()
        .route(
            "/scim/v2/ServiceProviderConfig",
            get(discovery::show_service),
        )
        .route(
            "/scim/v2/ResourceTypes",
            get(discovery::list_resource_types),
        )
        .route(
            "/scim/v2/ResourceTypes/{id}",
            get(discovery::get_resource_type),
        )
        .route("/scim/v2/Schemas", get(discovery::list_schemas))
        .route("/scim/v2/Schemas/{id}", get(discovery::get_schema))
        .route("/scim/v2/.search", any(search))
        .route("/scim/v2/{*path}", any(unknown_path));
    let routes = resource_routes(resource_routes(routes, Kind::User), Kind::Group);
    routes.method_not_allowed_fallback(wrong_method)
}

/// Adds the routes of a kind of resource.
fn resource_routes<S>(routes: Router<S>, kind: Kind) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<IdentityParts>: FromRef<S>,
{
    type Request = DirectoryRequest;
    type Id = Path<String>;
    let all = get(move |request: Request| resources::list(kind, request))
        .post(move |request: Request, body: Body| resources::create(kind, request, body));
    let one = get(move |request: Request, id: Id| resources::get(kind, request, id))
        .put(move |request: Request, id: Id, body: Body| {
            resources::replace(kind, request, id, body)
        })
        .patch(move |request: Request, id: Id, body: Body| {
            resources::patch(kind, request, id, body)
        })
        .delete(move |request: Request, id: Id| resources::delete(kind, request, id));
    let path = format!("/scim/v2/{}", kind.path());
    routes
        .route(&path, all)
        .route(&format!("{path}/{{id}}"), one)
}

async fn search(_: DirectoryRequest) -> ScimError {
    ScimError::not_implemented("Search users at `/Users`, and groups at `/Groups`.")
}

async fn unknown_path(_: DirectoryRequest) -> ScimError {
    ScimError::not_found("This path does not exist.")
}

async fn wrong_method(_: DirectoryRequest) -> ScimError {
    ScimError::method()
}
