//! The endpoints of SCIM 2.0, below `/scim/v2`.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts, Path};
use http::Method;
use http::request::Parts;

use super::error::ScimError;
use super::resources::{self, Base, Body, DirectoryRequest};
use super::{Directory, Kind, discovery};
use crate::IdentityParts;
use crate::endpoints::{Access, Endpoints, any, get, post};

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

/// Returns the endpoints. A standard defines them, so the OpenAPI document leaves them out.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<IdentityParts>: FromRef<S>,
{
    type Request = DirectoryRequest;
    type Id = Path<String>;
    let mut endpoints = Endpoints::new().row(
        Access::Directory,
        [
            get("/scim/v2/ServiceProviderConfig", discovery::show_service),
            get("/scim/v2/ResourceTypes", discovery::list_resource_types),
            get("/scim/v2/ResourceTypes/{id}", discovery::get_resource_type),
            get("/scim/v2/Schemas", discovery::list_schemas),
            get("/scim/v2/Schemas/{id}", discovery::get_schema),
            any(None, "/scim/v2/.search", search),
            any(None, "/scim/v2/{*path}", unknown_path),
        ],
    );
    for kind in [Kind::User, Kind::Group] {
        let all = &format!("/scim/v2/{}", kind.path());
        let one = &format!("{all}/{{id}}");
        let list = move |request: Request| resources::list(kind, request);
        let create = move |request: Request, body: Body| resources::create(kind, request, body);
        let show = move |request: Request, id: Id| resources::get(kind, request, id);
        let replace =
            move |request: Request, id: Id, body: Body| resources::replace(kind, request, id, body);
        let patch =
            move |request: Request, id: Id, body: Body| resources::patch(kind, request, id, body);
        let delete = move |request: Request, id: Id| resources::delete(kind, request, id);
        endpoints = endpoints.row(
            Access::Directory,
            [
                get(all, list),
                post(all, create),
                get(one, show),
                any(Some(Method::PUT), one, replace),
                any(Some(Method::PATCH), one, patch),
                any(Some(Method::DELETE), one, delete),
            ],
        );
    }
    endpoints.map_router(|router| router.method_not_allowed_fallback(wrong_method))
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
