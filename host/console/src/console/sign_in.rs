//! Sign-in and sign-out.
//!
//! People sign in at an issuer ([`super::issuers`]), if the settings name one.
//! The web app signs its user in with a form that posts the user's two tokens here; users can also paste the tokens.
//! Development mode has a button instead. An administrator may sign in with the code of a link from `weir console`: the
//! script takes the code out of the URL's fragment and sends the form; without a script, the administrator can paste
//! it.

use askama::Template;
use axum::extract::{Request, State};
use axum::response::Response;
use http::HeaderMap;
use http::request::Parts;
use weir_app::App;
use weir_errors::ApiError;
use weir_identity::sign_in::issuer::SignInIssuer;
use weir_identity::web_session::WebSession;
use weir_request::query::ListQuery;

use super::form::{self, ConsoleForm, FormError, FormFields};
use super::frame::Frame;
use super::{respond, session};

#[derive(Template)]
#[template(path = "console/sign_in.html")]
struct SignIn {
    frame: Frame,
    /// Whether the page has buttons for development mode's users.
    is_development: bool,
    issuers: Vec<IssuerButton>,
    /// The page to open after sign-in.
    next: String,
    refused: FormError,
}

/// A button that leads to an issuer.
struct IssuerButton {
    name: String,
    path: String,
}

/// `GET /console/sign-in`
pub(super) async fn show_sign_in(
    State(app): State<App>,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    let next = query.text("next")?.unwrap_or_default();
    respond::page(
        http::StatusCode::OK,
        &page(&app, &next, FormError::default()),
    )
}

/// `POST /console/sign-in`: signs in with a web user's two tokens, `identity_token` and `attestation_token`.
pub(super) async fn sign_in(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, fields) = read(&app, request).await?;
    let next = fields.text("next");
    let (identity, attestation) = (
        fields.text("identity_token"),
        fields.text("attestation_token"),
    );
    let what = "These tokens are invalid or expired. Request new ones from the web app.";
    match WebSession::begin(&parts, &app.identity, identity, attestation).await {
        Ok(session) => enter(&app, &parts.headers, &session, next),
        Err(error) => show_refused(&app, next, error, what),
    }
}

/// `POST /console/sign-in/development`: signs in as development mode's user or administrator.
pub(super) async fn sign_in_in_development(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, fields) = read(&app, request).await?;
    let as_admin = fields.text("as") == "administrator";
    let session = WebSession::begin_in_development(&parts, &app.identity, as_admin).await?;
    enter(&app, &parts.headers, &session, fields.text("next"))
}

/// `POST /console/sign-in/link`: signs in as an administrator, with the code of a link from `weir console`.
pub(super) async fn sign_in_by_link(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    form::require_own_page(request.headers())?;
    let (parts, fields) = read(&app, request).await?;
    let begun = WebSession::begin_by_link(&parts, &app.identity, fields.text("code")).await;
    let what = "This link is invalid, used or expired. `weir console` prints a new one.";
    let session = match begun {
        Ok(session) => session,
        Err(error) => return show_refused(&app, fields.text("next"), error, what),
    };
    enter(&app, &parts.headers, &session, fields.text("next"))
}

/// `POST /console/sign-out`: ends the session, and leads to the issuer's sign-out, if it has one.
pub(super) async fn sign_out(
    State(app): State<App>,
    headers: HeaderMap,
    ConsoleForm { user, .. }: ConsoleForm,
) -> Result<Response, ApiError> {
    user.end_session().await?;
    let mut response = match user.issuer_sign_out(&headers).await {
        Some(url) => respond::onward(&url)?,
        None => respond::see_other(session::SIGN_IN_PAGE),
    };
    session::forget(&mut response, &app);
    Ok(response)
}

/// Shows the page again with the reason if weir rejected the credentials.
pub(super) fn show_refused(
    app: &App,
    next: &str,
    error: ApiError,
    what: &str,
) -> Result<Response, ApiError> {
    if error.status() != http::StatusCode::UNAUTHORIZED {
        return Err(error);
    }
    let error = error.with_message(what);
    let response = respond::page(error.status(), &page(app, next, FormError::by(&error)))?;
    Ok(respond::told_already(response, error))
}

fn page(app: &App, next: &str, refused: FormError) -> SignIn {
    let next = session::own_path(next);
    SignIn {
        frame: Frame::bare("Sign in"),
        is_development: app.identity.has_development_users,
        issuers: buttons(app, next),
        next: next.to_owned(),
        refused,
    }
}

fn buttons(app: &App, next: &str) -> Vec<IssuerButton> {
    let issuers = app.identity.sign_in.iter().enumerate();
    let button = |(index, issuer): (usize, &SignInIssuer)| {
        let path = format!("{}/oidc/{index}?", session::SIGN_IN_PAGE);
        let start = path.len();
        let mut path = url::form_urlencoded::Serializer::for_suffix(path, start);
        IssuerButton {
            name: issuer.settings().name.clone(),
            path: path.append_pair("next", next).finish(),
        }
    };
    issuers.map(button).collect()
}

/// Reads a form without a session. It may come from our own page or from the web app's page; otherwise another site
/// could sign its visitors in as another user.
async fn read(app: &App, request: Request) -> Result<(Parts, FormFields), ApiError> {
    if !form::may_sign_in(app, request.headers()) {
        form::require_own_page(request.headers())?;
    }
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    Ok((parts, FormFields::read(request, app).await?))
}

fn enter(
    app: &App,
    headers: &HeaderMap,
    session: &WebSession,
    next: &str,
) -> Result<Response, ApiError> {
    let next = session::own_path(next);
    let mut response = match form::require_own_page(headers) {
        Ok(()) => respond::see_other(next),
        // After a redirect from the web app's page, browsers would not send the cookie.
        Err(_) => respond::onward(next)?,
    };
    session::keep(&mut response, app, session);
    Ok(response)
}
