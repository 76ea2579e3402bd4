//! Security events: the actor, the action and the user.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use weir_errors::ApiError;
use weir_storage::clock::Millis;

use super::{ListRequest, core};
use crate::admin::events::{self, AuditItem};
use crate::app::App;
use crate::console::format::DisplayTime;
use crate::console::frame::{AUDIT, Frame};
use crate::console::session::ConsoleAdmin;
use crate::csv_export::preferring_csv;
use crate::query::ListQuery;

/// The fields of the filter.
const FIELDS: [&str; 3] = ["kind", "user_id", "actor"];

#[derive(Template)]
#[template(path = "console/admin/audit.html")]
struct AuditPage {
    frame: Frame,
    asked: ListRequest<3>,
    events: Vec<AuditItem>,
    next: Option<String>,
    now: Millis,
}

/// `GET /console/admin/audit`
pub(super) async fn show_audit(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, FIELDS, "before")?;
    let list = events::list(&core(&app), asked.query()).await?;
    let page = AuditPage {
        frame: admin.user.frame("Audit", AUDIT),
        next: asked.next(AUDIT.path, list.next),
        events: list.events,
        now: app.clock.now(),
        asked,
    };
    admin.user.show(&page)
}

/// `GET /console/admin/audit.csv`: returns all events of a filter as a file.
pub(super) async fn download_events(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, FIELDS, "before")?;
    let (caller, headers) = (admin.caller(), preferring_csv());
    events::list_events(core(&app), caller, headers, asked.query_of_all()).await
}
