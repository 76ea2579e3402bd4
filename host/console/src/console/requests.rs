//! Completed requests: a list, and the details of one, with its prompt and response if weir stores them.

use askama::Template;
use axum::extract::{FromRef as _, Path, State};
use axum::response::Response;
use weir_accounts::billing::content::{ContentViewer, find as find_content};
use weir_accounts::billing::history::{RequestItem, UsageQuery};
use weir_accounts::keys::KeyParts;
use weir_accounts::keys::routes::own_keys;
use weir_app::App;
use weir_errors::ApiError;
use weir_identity::store::KeyItem;
use weir_request::audit::Actor;
use weir_request::csv_export::preferring_csv;
use weir_request::query::ListQuery;
use weir_storage::clock::Millis;

use super::content::{self, ContentPanel};
use super::format::{self, DisplayTime};
use super::frame::{Frame, REQUESTS};
use super::session::ConsoleUser;

/// Requests of a page.
const LIMIT: u32 = 50;

#[derive(Template)]
#[template(path = "console/requests.html")]
struct RequestsListPage {
    frame: Frame,
    requests: Vec<RequestItem>,
    /// The keys that the user can filter by.
    keys: Vec<KeyItem>,
    /// The filters: status, model, key, and the first and the last day.
    status: String,
    model: String,
    key: String,
    from: String,
    to: String,
    /// The address of the next page, if one exists.
    next: Option<String>,
    /// The address of the complete table.
    table: String,
    archived_before: Option<String>,
    /// Failed requests of the period without a record.
    unrecorded: i64,
    refused: super::form::FormError,
    now: Millis,
}

#[derive(Template)]
#[template(path = "console/request.html")]
struct RequestDetailPage {
    frame: Frame,
    request: RequestItem,
    at: DisplayTime,
    panel: ContentPanel,
}

impl RequestsListPage {
    /// Returns the address of the requests of this filter, before a position.
    fn address(&self, path: &str, before: &str) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in [
            ("status", &*self.status),
            ("model", &*self.model),
            ("key", &*self.key),
            ("from", &*self.from),
            ("to", &*self.to),
            ("before", before),
        ] {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        format!("{path}?{}", query.finish())
    }
}

/// `GET /console/requests`
pub(super) async fn show_requests(
    State(app): State<App>,
    user: ConsoleUser,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    let mut text = |name| query.text(name).map(Option::unwrap_or_default);
    let (model, key, from, to) = (text("model")?, text("key")?, text("from")?, text("to")?);
    let (status, before) = (text("status")?, text("before")?);
    query.finish()?;
    let asked = [
        ("status", status.clone()),
        ("model", model.clone()),
        ("key", key.clone()),
        ("from", from.clone()),
        ("to", to.clone()),
        ("before", before),
        ("limit", LIMIT.to_string()),
    ];
    let now = app.ledger.now();
    let list = history(&app, &user)
        .list(&app.failed_requests, ListQuery::filled(asked))
        .await;
    let mut page = RequestsListPage {
        frame: user.frame("Requests", REQUESTS),
        requests: Vec::new(),
        keys: own_keys(&KeyParts::from_ref(&app), &user.web).await?,
        next: None,
        table: String::new(),
        archived_before: None,
        unrecorded: 0,
        refused: super::form::FormError::default(),
        now,
        status,
        model,
        key,
        from,
        to,
    };
    match list {
        Ok(list) => {
            page.next = list
                .next
                .map(|next| page.address("/console/requests", &next));
            page.table = page.address("/console/requests/table.csv", "");
            page.archived_before = list.archived_before.as_deref().map(format::day);
            page.unrecorded = list.unrecorded.unwrap_or_default();
            page.requests = list.requests;
            user.show(&page)
        }
        Err(error) if error.status().is_client_error() => {
            page.refused = super::form::FormError::by(&error);
            user.show_refused(error, &page)
        }
        Err(error) => Err(error),
    }
}

/// `GET /console/requests/table.csv`: returns all requests of a filter as a file.
pub(super) async fn download_requests(
    State(app): State<App>,
    user: ConsoleUser,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    let mut filled = |name| {
        query
            .text(name)
            .map(|text| (name, text.unwrap_or_default()))
    };
    let asked = [
        filled("status")?,
        filled("model")?,
        filled("key")?,
        filled("from")?,
        filled("to")?,
    ];
    query.finish()?;
    history(&app, &user)
        .requests(
            &app.failed_requests,
            &app.exports,
            &preferring_csv(),
            ListQuery::filled(asked),
        )
        .await
}

/// `GET /console/requests/{request_id}`
pub(super) async fn show_request(
    State(app): State<App>,
    user: ConsoleUser,
    Path(request_id): Path<String>,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let is_wanted = content::is_wanted(query)?;
    let request = history(&app, &user)
        .request(&app.failed_requests, &request_id)
        .await?;
    let viewer = ContentViewer {
        user_id: &user.caller.user_id,
        account_id: &user.caller.account.0,
        role: user.caller.role,
        key_id: None,
    };
    let stored = find_content(app.content_log.as_deref(), &viewer, &request_id).await?;
    let actor = Actor::user(&user.caller.user_id);
    let path = format!("/console/requests/{request_id}");
    user.show(&RequestDetailPage {
        frame: user.frame("Request", REQUESTS),
        at: DisplayTime::read(&request.at, app.ledger.now()),
        panel: ContentPanel::of(&app, &actor, stored, is_wanted, &path),
        request,
    })
}

fn history<'a>(app: &'a App, user: &ConsoleUser) -> UsageQuery<'a> {
    UsageQuery {
        database: &app.database,
        account: user.account(),
        now: app.ledger.now(),
    }
}
