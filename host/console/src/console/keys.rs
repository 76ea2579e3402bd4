//! Keys: the list, creation with example snippets, and revocation.

use askama::Template;
use axum::extract::{FromRef as _, Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use weir_accounts::billing::budgets::{self, BudgetItem};
use weir_accounts::keys::KeyParts;
use weir_accounts::keys::limits::KeyLimits;
use weir_accounts::keys::routes::{KeyPlace, make_key, own_keys, revoke, set_content_log};
use weir_accounts::organisations::{ProjectItem, list_projects};
use weir_app::App;
use weir_errors::ApiError;
use weir_identity::scope::KeyScope;
use weir_identity::store::KeyItem;
use weir_ledger::BudgetWindow;
use weir_request::content_log::ContentLogChoice;
use weir_storage::clock::Millis;
use weir_storage::ids;

use super::form::{ConsoleForm, FormError, FormFields};
use super::format::{self, DisplayTime};
use super::frame::{Flash, Frame, KEYS};
use super::respond;
use super::session::ConsoleUser;
use super::snippets::{self, Snippet};

/// The page that shows a new key.
const MADE: &str = "/console/keys/made";

/// The form's fields, with the API's names, under which errors refer to them.
const FIELDS: &[&str] = &[
    "name",
    "expires_in_days",
    "budget_credits",
    "window",
    "models",
    "regions",
    "max_retention_days",
    "project_id",
    "scope",
];

#[derive(Template)]
#[template(path = "console/keys.html")]
struct KeysPage {
    frame: Frame,
    keys: Vec<ConsoleKey>,
    /// The days for which weir stores prompts and responses; `None` if the operator does not allow it.
    content_days: Option<i64>,
    models: Vec<String>,
    /// The organisation's projects; empty for a personal account.
    projects: Vec<ProjectItem>,
    windows: [BudgetWindow; 5],
    scopes: [KeyScope; 2],
    /// Whether an active key may use all endpoints.
    has_full_key: bool,
    asked: NewKeyForm,
    refused: FormError,
}

/// A key, as its user sees it.
struct ConsoleKey {
    id: String,
    name: String,
    prefix: String,
    state: &'static str,
    scope: KeyScope,
    /// The project's name, or its id if it is archived.
    project: Option<String>,
    created: DisplayTime,
    used: Option<DisplayTime>,
    expires: DisplayTime,
    models: Vec<String>,
    /// Limits on providers, in words.
    data_limits: Vec<String>,
    /// Whether the prompts and responses of its requests are stored.
    content_log: ContentLogChoice,
    /// Whether the user may turn that on.
    can_log: bool,
    /// Names and values.
    filter_options: Vec<(String, String)>,
    budgets: Vec<BudgetItem>,
}

/// The form for a new key, with the user's own input.
#[derive(Default)]
struct NewKeyForm {
    name: String,
    days: String,
    budget: String,
    window: String,
    models: Vec<String>,
    regions: String,
    retention: String,
    project: String,
    scope: KeyScope,
}

#[derive(Template)]
#[template(path = "console/key_made.html")]
struct CreatedKeyPage {
    frame: Frame,
    name: String,
    raw: String,
    expires: DisplayTime,
    snippets: Vec<Snippet>,
}

/// `GET /console/keys`
pub(super) async fn show_keys(
    State(app): State<App>,
    user: ConsoleUser,
) -> Result<Response, ApiError> {
    let form = NewKeyForm {
        scope: default_scope(&user),
        ..NewKeyForm::default()
    };
    let page = page(&app, &user, form, FormError::default()).await?;
    user.show(&page)
}

/// A new key on its way to the page that shows it once: reloading that page must not create another key.
#[derive(Serialize, Deserialize)]
struct CreatedKeySecret {
    name: String,
    raw: String,
    expires_at: i64,
    /// A model that the key may use.
    model: Option<String>,
}

/// `POST /console/keys`: creates a key, and redirects the browser to the page that shows it.
pub(super) async fn make_own_key(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let asked = NewKeyForm {
        name: fields.text("name").to_owned(),
        days: fields.text("expires_in_days").to_owned(),
        budget: fields.text("budget_credits").to_owned(),
        window: fields.text("window").to_owned(),
        models: fields.all("models"),
        regions: fields.text("regions").to_owned(),
        retention: fields.text("max_retention_days").to_owned(),
        project: fields.text("project_id").to_owned(),
        scope: fields.text("scope").parse().unwrap_or(default_scope(&user)),
    };
    let made = async {
        let limits = read_limits(&app, &fields)?.with_scope(Some(asked.scope));
        let name = fields.filled("name").unwrap_or("Default");
        let place = KeyPlace {
            project_id: fields.filled("project_id").map(str::to_owned),
            service_account_id: None,
        };
        make_key(&KeyParts::from_ref(&app), &user.web, place, name, &limits).await
    };
    match made.await {
        Ok((key, expires_at)) => {
            let made = CreatedKeySecret {
                name: fields.filled("name").unwrap_or("Default").to_owned(),
                raw: key.expose().to_owned(),
                expires_at: expires_at.0,
                model: asked.models.into_iter().next(),
            };
            Ok(user.go_with(MADE, &made))
        }
        Err(error) if error.status().is_client_error() => {
            let page = page(&app, &user, asked, FormError::by(&error)).await?;
            user.show_refused(error, &page)
        }
        Err(error) => Err(error),
    }
}

/// `GET /console/keys/made`: shows the new key once.
pub(super) async fn show_made_key(
    State(app): State<App>,
    headers: HeaderMap,
    user: ConsoleUser,
) -> Result<Response, ApiError> {
    let shown = user.take_once(&headers, |made: CreatedKeySecret| {
        let base = snippets::base(&app, snippets::host(&headers));
        let catalog = app.catalog.load();
        let model = made.model.unwrap_or_else(|| snippets::model(&catalog));
        let page = CreatedKeyPage {
            frame: user.frame("Your new key", KEYS),
            name: made.name,
            snippets: snippets::of(&base, &made.raw, &model),
            raw: made.raw,
            expires: DisplayTime::of(Millis(made.expires_at), app.clock.now()),
        };
        respond::page(StatusCode::OK, &page)
    });
    shown.unwrap_or_else(|| {
        let what =
            "A new key is shown once. If you have not saved it, revoke it and create another.";
        Ok(user.go(KEYS.path, Flash::bad(what)))
    })
}

/// `POST /console/keys/{key_id}/revoke`
pub(super) async fn revoke_key(
    State(app): State<App>,
    Path(key_id): Path<String>,
    ConsoleForm { user, .. }: ConsoleForm,
) -> Result<Response, ApiError> {
    revoke(&KeyParts::from_ref(&app), &user.web, &key_id).await?;
    let done = "The key is revoked: weir rejects it from now on.";
    Ok(user.go(KEYS.path, Flash::good(done)))
}

/// `POST /console/keys/{key_id}/content-log`
pub(super) async fn set_key_content_log(
    State(app): State<App>,
    Path(key_id): Path<String>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let enabled = fields.text("enabled") == "true";
    set_content_log(&KeyParts::from_ref(&app), &user.web, &key_id, enabled).await?;
    let done = match enabled {
        true => "weir stores the prompts and responses of the key’s requests from now on.",
        false => "weir stores no further prompts and responses because of this key.",
    };
    Ok(user.go(KEYS.path, Flash::good(done)))
}

/// The scope of a new key in the account of the session.
fn default_scope(user: &ConsoleUser) -> KeyScope {
    KeyScope::of_new_key(ids::is_organisation(&user.web.account.0))
}

fn read_limits(app: &App, fields: &FormFields) -> Result<KeyLimits, ApiError> {
    let days = fields.filled("expires_in_days").map(|days| {
        let what = "Enter a whole number of days.";
        let days = days.parse();
        days.map_err(|_| ApiError::invalid_request("expires_in_days", what))
    });
    let asked = fields.budget()?;
    let models = fields.all("models");
    let models = (!models.is_empty()).then_some(models);
    let data = Some(fields.data_limits()?);
    let catalog = app.catalog.load();
    KeyLimits::read(asked, models, data, days.transpose()?, Some(&catalog))
}

async fn page(
    app: &App,
    user: &ConsoleUser,
    asked: NewKeyForm,
    refused: FormError,
) -> Result<KeysPage, ApiError> {
    let keys = own_keys(&KeyParts::from_ref(app), &user.web).await?;
    let projects = list_projects(&app.database, &user.web.account.0).await;
    let projects = projects.map_err(|error| ApiError::of_database(&error, "about projects"))?;
    let now = app.ledger.now();
    let name_of = |id: String| {
        let mut projects = projects.iter();
        let project = projects.find(|project| project.project_id == id);
        project.map_or(id, |project| project.name.clone())
    };
    let key = |key: KeyItem| ConsoleKey {
        state: match () {
            () if key.disabled => "revoked",
            () if key.expires_at <= now => "expired",
            () => "active",
        },
        scope: key.scope,
        created: DisplayTime::of(key.created_at, now),
        used: key.last_used_at.map(|at: Millis| DisplayTime::of(at, now)),
        expires: DisplayTime::of(key.expires_at, now),
        budgets: budgets::items(key.standings(now)),
        filter_options: key.filter_options.pairs(),
        models: key.models,
        data_limits: key.data_limits.shown(),
        content_log: key.content_log,
        can_log: key
            .holder_id
            .as_ref()
            .is_none_or(|holder| *holder == user.caller.user_id || ids::is_service_account(holder)),
        project: key.project_id.map(name_of),
        id: key.id,
        name: key.name,
        prefix: key.prefix,
    };
    let catalog = app.catalog.load();
    let keys: Vec<_> = keys.into_iter().map(key).collect();
    Ok(KeysPage {
        frame: user.frame("Keys", KEYS),
        has_full_key: (keys.iter()).any(|key| key.state == "active" && key.scope == KeyScope::Full),
        keys,
        scopes: KeyScope::ALL,
        content_days: app.content_log.as_ref().map(|log| log.days()),
        projects,
        models: catalog.models().map(|model| model.id.to_string()).collect(),
        windows: BudgetWindow::ALL,
        asked,
        refused,
    })
}
