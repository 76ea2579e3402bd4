//! The swarms of all users, and their cancellation.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use weir_app::App;
use weir_errors::ApiError;
use weir_request::csv_export::preferring_csv;
use weir_request::query::ListQuery;
use weir_storage::clock::Millis;
use weir_swarms::swarm::admin::{self as swarms, SwarmOutline};

use super::{ListRequest, core};
use crate::console::form::AdminForm;
use crate::console::format::{self, DisplayTime};
use crate::console::frame::{ALL_SWARMS, Frame};
use crate::console::session::ConsoleAdmin;

const FIELDS: [&str; 2] = ["user_id", "open"];

#[derive(Template)]
#[template(path = "console/admin/swarms.html")]
struct SwarmsPage {
    frame: Frame,
    asked: ListRequest<2>,
    swarms: Vec<SwarmOutline>,
    next: Option<String>,
    now: Millis,
}

/// `GET /console/admin/swarms`
pub(super) async fn show_swarms(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, FIELDS, "before")?;
    let list = swarms::list(&core(&app), asked.query()).await?;
    let page = SwarmsPage {
        frame: admin.user.frame("All swarms", ALL_SWARMS),
        next: asked.next(ALL_SWARMS.path, list.next),
        swarms: list.swarms,
        now: app.clock.now(),
        asked,
    };
    admin.user.show(&page)
}

/// `GET /console/admin/swarms.csv`: returns all swarms of a filter as a file.
pub(super) async fn download_swarms(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, FIELDS, "before")?;
    let (caller, headers) = (admin.caller(), preferring_csv());
    swarms::list_swarms(core(&app), caller, headers, asked.query_of_all()).await
}

/// `POST /console/admin/swarms/{execution_id}/cancel`
pub(super) async fn cancel_swarm(
    State(app): State<App>,
    Path(id): Path<String>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    let cancelled = swarms::cancel_swarm(core(&app), admin.caller(), Path(id));
    let done = "The swarm ends within two seconds.";
    admin.done(ALL_SWARMS.path, cancelled.await, done)
}
