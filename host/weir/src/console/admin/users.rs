//! Users and their keys: search, disable, enable and revoke.

use askama::Template;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use weir_errors::ApiError;
use weir_storage::clock::Millis;

use super::{ListRequest, core};
use crate::admin::keys::{self, AdminKeyItem};
use crate::admin::users::{self, UserItem};
use crate::app::App;
use crate::console::form::AdminForm;
use crate::console::format::{self, DisplayTime};
use crate::console::frame::{Frame, PEOPLE};
use crate::console::session::ConsoleAdmin;
use crate::identity;
use crate::query::ListQuery;

#[derive(Template)]
#[template(path = "console/admin/users.html")]
struct UsersPage {
    frame: Frame,
    asked: ListRequest<3>,
    users: Vec<UserItem>,
    next: Option<String>,
    now: Millis,
}

#[derive(Template)]
#[template(path = "console/admin/user.html")]
struct UserPage {
    frame: Frame,
    user: UserItem,
    keys: Vec<AdminKeyItem>,
    asked: ListRequest<1>,
    next: Option<String>,
    is_self: bool,
    now: Millis,
}

/// `GET /console/admin/users`
pub(super) async fn show_users(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, ["subject", "plan", "disabled"], "after")?;
    let listed = users::list_users(core(&app), admin.caller(), asked.query());
    let Json(list) = listed.await?;
    let page = UsersPage {
        frame: admin.user.frame("Users", PEOPLE),
        next: asked.next(PEOPLE.path, list.next),
        users: list.users,
        now: app.clock.now(),
        asked,
    };
    admin.user.show(&page)
}

/// `GET /console/admin/users/{user_id}`
pub(super) async fn show_user(
    State(app): State<App>,
    admin: ConsoleAdmin,
    Path(user_id): Path<String>,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, ["active"], "after")?;
    let found = users::get_user(core(&app), admin.caller(), Path(user_id.clone())).await?;
    let mut of_user = asked.query();
    of_user.set("user_id", user_id.clone());
    let Json(keys) = keys::list_keys(core(&app), admin.caller(), of_user).await?;
    let Json(user) = found;
    let page = UserPage {
        next: asked.next(&path_of(&user_id), keys.next),
        asked,
        frame: admin.user.frame("User", PEOPLE),
        is_self: user.user_id == admin.user.caller.user_id,
        keys: keys.keys,
        now: app.clock.now(),
        user,
    };
    admin.user.show(&page)
}

/// `POST /console/admin/users/{user_id}/disable`
pub(super) async fn disable_user(
    State(app): State<App>,
    Path(user_id): Path<String>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&user_id);
    let is_self = user_id == admin.user.caller.user_id;
    let disabled = async {
        if is_self {
            let why = "You cannot disable your own user here.";
            return Err(ApiError::invalid_request("user_id", why));
        }
        users::disable_user(core(&app), admin.caller(), Path(user_id)).await
    };
    let done = "The user is disabled: weir rejects their requests.";
    admin.done(&path, disabled.await, done)
}

/// `POST /console/admin/users/{user_id}/enable`
pub(super) async fn enable_user(
    State(app): State<App>,
    Path(user_id): Path<String>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&user_id);
    let enabled = users::enable_user(core(&app), admin.caller(), Path(user_id));
    admin.done(&path, enabled.await, "The user is enabled.")
}

/// `POST /console/admin/users/{user_id}/keys/{key_id}/revoke`
pub(super) async fn revoke_key(
    State(app): State<App>,
    Path((user_id, key_id)): Path<(String, String)>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    let revoked = identity::revoke(&app, &user_id, &key_id, &admin.actor);
    let done = "The key is revoked: every node rejects it.";
    admin.done(&path_of(&user_id), revoked.await, done)
}

fn path_of(user_id: &str) -> String {
    format!("{}/{}", PEOPLE.path, format::segment(user_id))
}
