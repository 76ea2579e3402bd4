//! Addresses that are locked out after failed authentications.

use askama::Template;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use weir_app::App;
use weir_errors::ApiError;
use weir_identity::lockout::LOCKOUT;
use weir_request::query::ListQuery;
use weir_storage::clock::Millis;

use super::{LIMIT, core};
use crate::admin::lockouts::{self, LockoutItem};
use crate::console::form::AdminForm;
use crate::console::format::{self, DisplayTime};
use crate::console::frame::{Frame, LOCKOUTS};
use crate::console::session::ConsoleAdmin;

#[derive(Template)]
#[template(path = "console/admin/lockouts.html")]
struct LockoutsPage {
    frame: Frame,
    lockouts: Vec<LockoutItem>,
    /// Whether more lockouts exist than the page shows.
    is_cut: bool,
    /// The lockout policy: the number of failures, their period in minutes, and the lockout's duration in minutes.
    policy: (u32, u64, u64),
    now: Millis,
}

/// `GET /console/admin/lockouts`
pub(super) async fn show_lockouts(
    State(app): State<App>,
    admin: ConsoleAdmin,
) -> Result<Response, ApiError> {
    let query = ListQuery::from([("limit", LIMIT.to_string())]);
    let listed = lockouts::list_lockouts(core(&app), admin.caller(), query);
    let Json(list) = listed.await?;
    let page = LockoutsPage {
        frame: admin.user.frame("Lockouts", LOCKOUTS),
        is_cut: list.lockouts.len() >= LIMIT as usize,
        policy: (
            LOCKOUT.failures.get(),
            LOCKOUT.window.as_secs() / 60,
            LOCKOUT.block.as_secs() / 60,
        ),
        lockouts: list.lockouts,
        now: app.clock.now(),
    };
    admin.user.show(&page)
}

/// `POST /console/admin/lockouts/{address}/clear`
pub(super) async fn clear_lockout(
    State(app): State<App>,
    Path(address): Path<String>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    // For an IPv6 network, any of its addresses works.
    let plain = address.split('/').next().unwrap_or_default().to_owned();
    let cleared = lockouts::clear_lockout(core(&app), admin.caller(), Path(plain));
    let done = format!("The lockout of {address} is ended.");
    admin.done(LOCKOUTS.path, cleared.await, done)
}
