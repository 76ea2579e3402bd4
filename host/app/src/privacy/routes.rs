//! `/users/me` and `/admin/users/{user_id}`: the export and the erasure of a person's data.

use axum::Json;
use axum::extract::{FromRef, FromRequestParts, Path, State};
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_identity::admin::AdminCaller;
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::{WebCaller, handlers};
use weir_request::audit::Actor;
use weir_request::node::Core;
use weir_request::query::ListQuery;
use weir_request::small_body::SmallBody;

use super::erase::{self, ErasureRequest};
use super::{Erasure, PrivacyParts, export};
use crate::App;

/// Returns the endpoints of people's data.
pub fn endpoints() -> Endpoints<App> {
    Endpoints::new().row(Access::Person, handlers!(export_me, erase_me))
}

/// Returns the administrators' endpoint of a person's data.
pub fn admin_endpoints() -> Endpoints<App> {
    Endpoints::new().row(Access::Admin, handlers!(export_user))
}

/// Returns the administrators' endpoint that works without a gateway.
pub fn core_endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
    AdminCaller: FromRequestParts<S, Rejection = ApiError>,
{
    Endpoints::new().row(Access::Admin, handlers!(erase_user))
}

/// The body of an erasure.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ErasureConfirmation {
    /// The id of the user to erase, as a confirmation.
    confirm: String,
}

/// `GET /users/me/export`: everything that weir stores about the caller, as one JSON document.
#[utoipa::path(
    get, path = "/users/me/export", tag = "privacy",
    responses(
        (status = 200, description = "The caller's data, without secrets.", body = Object),
        (status = 429, description = "`TOO_MANY_AT_ONCE`: two exports of the caller are in progress."),
    ),
)]
pub async fn export_me(
    State(parts): State<PrivacyParts>,
    caller: WebCaller,
) -> Result<Response, ApiError> {
    export::answer(parts, caller.user_id).await
}

/// `DELETE /users/me`: erases the caller for ever. Their keys end at once on all nodes.
#[utoipa::path(
    delete, path = "/users/me", tag = "privacy",
    params(("forfeit_credits" = Option<bool>, Query, description = "Erase even if bought credits are left; they are lost.", nullable = false)),
    request_body = ErasureConfirmation,
    responses(
        (status = 200, description = "The user is erased.", body = Erasure),
        (status = 400, description = "`INVALID_REQUEST`: `confirm` is not the caller's user id."),
        (status = 409, description = "`NOT_POSSIBLE`, `LAST_OWNER`: a paid plan, bought credits, work in progress, or an organisation without another owner."),
    ),
)]
pub async fn erase_me(
    State(core): State<Core>,
    caller: WebCaller,
    query: ListQuery,
    SmallBody(body): SmallBody<ErasureConfirmation>,
) -> Result<Json<Erasure>, ApiError> {
    let by = Actor::user(&caller.user_id);
    erase(&core, &caller.user_id, query, &body, &by).await
}

/// `GET /admin/users/{user_id}/export`: everything that weir stores about a person, as one JSON document.
#[utoipa::path(
    get, path = "/admin/users/{user_id}/export", tag = "administration",
    params(("user_id" = String, Path, description = "The user's id.")),
    responses(
        (status = 200, description = "The person's data, without secrets.", body = Object),
        (status = 404, description = "`UNKNOWN_USER`: no person has this id."),
    ),
)]
pub async fn export_user(
    State(parts): State<PrivacyParts>,
    _: AdminCaller,
    Path(user_id): Path<String>,
) -> Result<Response, ApiError> {
    export::answer(parts, user_id).await
}

/// `DELETE /admin/users/{user_id}`: erases a person for ever. A repeat returns the time of the erasure.
#[utoipa::path(
    delete, path = "/admin/users/{user_id}", tag = "administration",
    params(
        ("user_id" = String, Path, description = "The user's id."),
        ("forfeit_credits" = Option<bool>, Query, description = "Erase even if bought credits are left; they are lost.", nullable = false),
    ),
    request_body = ErasureConfirmation,
    responses(
        (status = 200, description = "The user is erased.", body = Erasure),
        (status = 400, description = "`INVALID_REQUEST`: `confirm` is not the user's id."),
        (status = 404, description = "`UNKNOWN_USER`: no person has this id."),
        (status = 409, description = "`NOT_POSSIBLE`, `LAST_OWNER`: a paid plan, bought credits, work in progress, or an organisation without another owner."),
    ),
)]
pub async fn erase_user(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(user_id): Path<String>,
    query: ListQuery,
    SmallBody(body): SmallBody<ErasureConfirmation>,
) -> Result<Json<Erasure>, ApiError> {
    erase(&core, &user_id, query, &body, &actor).await
}

async fn erase(
    core: &Core,
    user_id: &str,
    mut query: ListQuery,
    body: &ErasureConfirmation,
    by: &Actor,
) -> Result<Json<Erasure>, ApiError> {
    let forfeits_credits = query.flag("forfeit_credits")?.unwrap_or_default();
    query.finish()?;
    if body.confirm != user_id {
        let what = "`confirm` must be the id of the user to erase.";
        return Err(ApiError::invalid_request("confirm", what));
    }
    let request = ErasureRequest {
        user_id,
        forfeits_credits,
        by,
    };
    erase::erase(core, &request).await.map(Json)
}
