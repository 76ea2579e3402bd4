//! Security events: the actor, the action and the user.

use askama::Template;
use axum::Json;
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
use crate::query::ListQuery;

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
    let asked = ListRequest::take(query, ["kind", "user_id", "actor"], "before")?;
    let listed = events::list_events(core(&app), admin.caller(), asked.query());
    let Json(list) = listed.await?;
    let page = AuditPage {
        frame: admin.user.frame("Audit", AUDIT),
        next: asked.next(AUDIT.path, list.next),
        events: list.events,
        now: app.clock.now(),
        asked,
    };
    admin.user.show(&page)
}
