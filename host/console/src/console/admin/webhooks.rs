//! The payment processor's webhooks: their results, and retries.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use weir_accounts::payments::admin::{self as payments, PaymentEventItem};
use weir_app::App;
use weir_errors::ApiError;
use weir_request::csv_export::preferring_csv;
use weir_request::query::ListQuery;
use weir_storage::clock::Millis;

use super::{ListRequest, core};
use crate::console::form::AdminForm;
use crate::console::format::{self, DisplayTime};
use crate::console::frame::{Frame, WEBHOOKS};
use crate::console::session::ConsoleAdmin;

const STATES: [&str; 4] = ["waiting", "failed", "applied", "ignored"];

const FIELDS: [&str; 2] = ["state", "user_id"];

#[derive(Template)]
#[template(path = "console/admin/webhooks.html")]
struct WebhooksPage {
    frame: Frame,
    asked: ListRequest<2>,
    states: [&'static str; 4],
    events: Vec<PaymentEventItem>,
    next: Option<String>,
    now: Millis,
}

/// `GET /console/admin/webhooks`
pub(super) async fn show_webhooks(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, FIELDS, "before")?;
    let list = payments::list(&core(&app), asked.query()).await?;
    let page = WebhooksPage {
        frame: admin.user.frame("Webhooks", WEBHOOKS),
        states: STATES,
        next: asked.next(WEBHOOKS.path, list.next),
        events: list.events,
        now: app.clock.now(),
        asked,
    };
    admin.user.show(&page)
}

/// `GET /console/admin/webhooks.csv`: returns all events of a filter as a file.
pub(super) async fn download_webhooks(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, FIELDS, "before")?;
    let (caller, headers) = (admin.caller(), preferring_csv());
    payments::list_events(core(&app), caller, headers, asked.query_of_all()).await
}

/// `POST /console/admin/webhooks/{event_id}/retry`
pub(super) async fn retry_webhook(
    State(app): State<App>,
    Path(event_id): Path<String>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    let retried = payments::retry_event(core(&app), admin.caller(), Path(event_id));
    let done = "The event is applied again; effects that were already applied are not repeated.";
    admin.done(WEBHOOKS.path, retried.await, done)
}
