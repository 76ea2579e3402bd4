//! Requests of all accounts: a list with filters, and one request with the explanation of its failure.

use askama::Template;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use weir_accounts::billing::content::find_any;
use weir_app::App;
use weir_errors::{ApiError, ErrorCode};
use weir_inference::plugins::PluginParts;
use weir_inference::plugins::routes::list_plugins;
use weir_plugins::items::PluginItem;
use weir_request::csv_export::preferring_csv;
use weir_request::query::ListQuery;
use weir_storage::clock::Millis;

use super::ListRequest;
use crate::admin::requests::{self, AdminRequestItem};
use crate::console::content::{self, ContentPanel};
use crate::console::form::FormError;
use crate::console::format::{self, DisplayTime};
use crate::console::frame::{ALL_REQUESTS, Frame};
use crate::console::session::ConsoleAdmin;

const FIELDS: [&str; 10] = [
    "status",
    "error",
    "provider",
    "model",
    "user",
    "organisation",
    "key",
    "from",
    "to",
    "id",
];

#[derive(Template)]
#[template(path = "console/admin/requests.html")]
struct AllRequestsPage {
    frame: Frame,
    asked: ListRequest<10>,
    requests: Vec<AdminRequestItem>,
    codes: &'static [ErrorCode],
    next: Option<String>,
    refused: FormError,
    now: Millis,
}

#[derive(Template)]
#[template(path = "console/admin/request.html")]
struct AnyRequestPage {
    frame: Frame,
    request: AdminRequestItem,
    /// The component's slot, name and version, if it is still there.
    component: Option<(String, PluginItem)>,
    at: DisplayTime,
    panel: ContentPanel,
}

/// `GET /console/admin/requests`
pub(super) async fn show_requests(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, FIELDS, "before")?;
    let listed = requests::list(&app, asked.query()).await;
    let mut page = AllRequestsPage {
        frame: admin.user.frame("All requests", ALL_REQUESTS),
        requests: Vec::new(),
        codes: ErrorCode::ALL,
        next: None,
        refused: FormError::default(),
        now: app.clock.now(),
        asked,
    };
    match listed {
        Ok(list) => {
            page.next = page.asked.next(ALL_REQUESTS.path, list.next);
            page.requests = list.requests;
            admin.user.show(&page)
        }
        Err(error) if error.status().is_client_error() => {
            page.refused = FormError::by(&error);
            admin.user.show_refused(error, &page)
        }
        Err(error) => Err(error),
    }
}

/// `GET /console/admin/requests.csv`: returns all requests of a filter as a file.
pub(super) async fn download_requests(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, FIELDS, "before")?;
    let (caller, headers) = (admin.caller(), preferring_csv());
    requests::list_requests(State(app), caller, headers, asked.query_of_all()).await
}

/// `GET /console/admin/requests/{request_id}`
pub(super) async fn show_request(
    State(app): State<App>,
    State(plugins): State<PluginParts>,
    admin: ConsoleAdmin,
    Path(request_id): Path<String>,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let is_wanted = content::is_wanted(query)?;
    let request = requests::find(&app, &request_id).await?;
    let stored = find_any(app.content_log.as_deref(), &request_id).await?;
    let path = format!("{}/{}", ALL_REQUESTS.path, format::segment(&request_id));
    let component = match &request.adapter_digest {
        None => None,
        Some(digest) => {
            let by = admin.caller().into();
            let Json(list) = list_plugins(State(plugins), by).await?;
            let all = list.slots.into_iter().flat_map(|slot| {
                let plugins = slot.plugins.into_iter();
                plugins.map(move |plugin| (slot.slot.clone(), plugin))
            });
            all.into_iter().find(|(_, plugin)| plugin.digest == *digest)
        }
    };
    admin.user.show(&AnyRequestPage {
        component,
        frame: admin.user.frame("Request", ALL_REQUESTS),
        at: DisplayTime::read(&request.at, app.clock.now()),
        panel: ContentPanel::of(&app, admin.actor(), stored, is_wanted, &path),
        request,
    })
}
