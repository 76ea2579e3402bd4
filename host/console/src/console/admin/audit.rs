//! Security events: the actor, the action and the user.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use weir_app::App;
use weir_errors::ApiError;
use weir_ledger::plans;
use weir_request::csv_export::preferring_csv;
use weir_request::query::ListQuery;
use weir_storage::clock::Millis;

use super::people::People;
use super::{ListRequest, core};
use crate::admin::events::{self, AuditItem, AuditList};
use crate::console::form::FormError;
use crate::console::format::{self, DisplayTime};
use crate::console::frame::{AUDIT, Frame};
use crate::console::session::ConsoleAdmin;

const FIELDS: [&str; 6] = ["changes", "kind", "user_id", "actor", "from", "to"];

#[derive(Template)]
#[template(path = "console/admin/audit.html")]
struct AuditPage {
    frame: Frame,
    asked: ListRequest<6>,
    /// The day before today, in UTC.
    yesterday: String,
    events: Vec<AuditItem>,
    people: People,
    next: Option<String>,
    refused: FormError,
    now: Millis,
}

/// `GET /console/admin/audit`
pub(super) async fn show_audit(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, FIELDS, "before")?;
    let listed = events::list(&core(&app), asked.query()).await;
    let (list, refused) = match listed {
        Ok(list) => (list, FormError::default()),
        Err(error) if error.status().is_client_error() => {
            let nothing = AuditList {
                events: Vec::new(),
                next: None,
            };
            (nothing, FormError::by(&error))
        }
        Err(error) => return Err(error),
    };
    let mut actors = Vec::new();
    for AuditItem { actor, user_id, .. } in &list.events {
        actors.extend([actor, user_id].into_iter().flatten().map(String::as_str));
    }
    let people = People::of(&app, actors).await?;
    let page = AuditPage {
        people,
        refused,
        frame: admin.user.frame("Audit", AUDIT),
        next: asked.next(AUDIT.path, list.next),
        events: list.events,
        now: app.clock.now(),
        yesterday: plans::day(app.clock.now().plus_days(-1)),
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
