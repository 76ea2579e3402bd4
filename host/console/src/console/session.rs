//! Sessions: the console's cookies, and the extractors of handlers.

use std::time::Duration;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;
use weir_app::App;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::admin::AdminCaller;
use weir_identity::roles::Permission;
use weir_identity::sign_in::pending::{self, PendingSignIn};
use weir_identity::web_session::WebSession;
use weir_identity::{Caller, WebCaller};
use weir_ledger::AccountId;
use weir_request::audit::Actor;
use weir_storage::sealing::Purpose;

use super::frame::{Flash, Frame, Section, Viewer};
use super::{respond, snippets};

const SESSION: &str = "weir-console";
const FLASH: &str = "weir-console-notice";
const SHOWN_ONCE: &str = "weir-console-once";
const SIGN_IN: &str = "weir-console-sign-in";

pub(super) const SIGN_IN_PAGE: &str = "/console/sign-in";

/// Lifetime of a notice for the next page.
const FLASH_TTL: Duration = Duration::from_secs(60);

/// A signed-in user of the console.
#[derive(Clone)]
pub(super) struct ConsoleUser {
    pub(super) caller: Caller,
    /// The same user as a web user of the API.
    pub(super) web: WebCaller,
    session: WebSession,
    flash: Option<Flash>,
    app: App,
}

/// A signed-in administrator of the console.
#[derive(Clone)]
pub(super) struct ConsoleAdmin {
    pub(super) user: ConsoleUser,
    caller: AdminCaller,
}

/// The reason for which a handler gets no user.
pub(super) enum NotSignedIn {
    /// The request has no valid session: the response leads to the sign-in page.
    Nobody(Box<Response>),
    /// weir rejects the signed-in user.
    Refused(ApiError),
}

impl ConsoleUser {
    /// Makes the frame around the user's page.
    pub(super) fn frame(&self, title: impl Into<String>, section: Section) -> Frame {
        let viewer = Viewer {
            user_id: self.caller.user_id.clone(),
            organisation: self.organisation(),
            plan: self.caller.plan.name().to_owned(),
            is_admin: self.web.admin,
            form_token: self.session.form_token().to_owned(),
        };
        Frame::new(title, section, viewer, self.flash.clone())
    }

    pub(super) fn show(&self, page: &impl Template) -> Result<Response, ApiError> {
        let mut response = respond::page(StatusCode::OK, page)?;
        self.forget_flash(&mut response);
        Ok(response)
    }

    /// Shows a page with its error.
    pub(super) fn show_refused(
        &self,
        error: ApiError,
        page: &impl Template,
    ) -> Result<Response, ApiError> {
        let response = respond::page(error.status(), page)?;
        Ok(respond::told_already(response, error))
    }

    /// Redirects the browser to a page that shows the notice.
    pub(super) fn go(&self, path: &str, flash: Flash) -> Response {
        let mut response = respond::see_other(path);
        self.leave(&mut response, FLASH, &flash);
        response
    }

    /// Redirects the browser to a page that shows a value once, with [`Self::take_once`].
    pub(super) fn go_with(&self, path: &str, shown_once: &impl Serialize) -> Response {
        let mut response = respond::see_other(path);
        self.leave(&mut response, SHOWN_ONCE, shown_once);
        response
    }

    /// Shows a page with the value that was left for it. `None` if a page has already shown the value, or if it is
    /// older than [`FLASH_TTL`].
    pub(super) fn take_once<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        show: impl FnOnce(T) -> Result<Response, ApiError>,
    ) -> Option<Result<Response, ApiError>> {
        let sealed = cookie(headers, &name(&self.app, SHOWN_ONCE))?;
        let left = open_left(sealed, SHOWN_ONCE, self.session.form_token(), &self.app)?;
        Some(show(left).map(|mut response| {
            set_cookie(&mut response, &self.app, SHOWN_ONCE, "", Duration::ZERO);
            response
        }))
    }

    /// Stores a sealed value in the browser for the next page of this session.
    fn leave(&self, response: &mut Response, cookie: &str, left: &impl Serialize) {
        let plain = serde_json::to_vec(left).unwrap_or_default();
        let fields: &[&[u8]] = &[self.session.form_token().as_bytes(), cookie.as_bytes()];
        let keys = &self.app.sealing_keys;
        let sealed = URL_SAFE_NO_PAD.encode(keys.seal(Purpose::CONSOLE_NOTICE, fields, &plain));
        set_cookie(response, &self.app, cookie, &sealed, FLASH_TTL);
    }

    /// Returns the session after its user has chosen an organisation, by its id and name, or their personal account.
    pub(super) fn session_for(&self, account: Option<(String, String)>) -> WebSession {
        self.session.for_account(account)
    }

    /// Returns whether the user's role in the account has a permission.
    pub(super) fn may(&self, permission: Permission) -> bool {
        self.caller.role.allows(permission)
    }

    /// Returns the name of the organisation for which the user acts.
    fn organisation(&self) -> Option<String> {
        let id = &self.caller.account.0;
        let name = self.session.account_name(id).map(str::to_owned);
        name.filter(|_| !self.caller.is_personal())
    }

    pub(super) fn account(&self) -> AccountId {
        self.caller.account.clone()
    }

    /// Ends the session, also for a copied cookie.
    pub(super) async fn end_session(&self) -> Result<(), ApiError> {
        self.session.end(&self.app.identity).await
    }

    /// Returns the address at which the session's issuer signs the user out; `None` if there is none.
    pub(super) async fn issuer_sign_out(&self, headers: &HeaderMap) -> Option<String> {
        let issuer = self.session.issuer(&self.app.identity)?;
        let then = own_url(headers, &self.app, SIGN_IN_PAGE).ok()?;
        issuer.sign_out_url(&then).await.map(String::from)
    }

    /// Returns the form token of the user's pages.
    pub(super) fn form_token(&self) -> &str {
        self.session.form_token()
    }

    fn forget_flash(&self, response: &mut Response) {
        if self.flash.is_some() {
            set_cookie(response, &self.app, FLASH, "", Duration::ZERO);
        }
    }
}

impl FromRequestParts<App> for ConsoleUser {
    type Rejection = NotSignedIn;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, NotSignedIn> {
        let now = app.clock.now();
        let sealed = cookie(&parts.headers, &name(app, SESSION));
        let session = sealed.and_then(|sealed| WebSession::open(sealed, &app.sealing_keys, now));
        let Some(session) = session else {
            return Err(nobody(parts));
        };
        let caller = session.admit(parts, &app.identity).await?;
        let user = caller.and_then(|caller| Some((caller.web()?, caller)));
        let Some((web, caller)) = user else {
            return Err(nobody(parts));
        };
        let flash = cookie(&parts.headers, &name(app, FLASH));
        let flash = flash.and_then(|sealed| open_left(sealed, FLASH, session.form_token(), app));
        Ok(Self {
            caller,
            web,
            session,
            flash,
            app: app.clone(),
        })
    }
}

impl FromRequestParts<App> for ConsoleAdmin {
    type Rejection = NotSignedIn;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, NotSignedIn> {
        let user = ConsoleUser::from_request_parts(parts, app).await?;
        user.administrator().map_err(NotSignedIn::Refused)
    }
}

impl ConsoleUser {
    /// Returns the same user as an administrator.
    pub(super) fn administrator(self) -> Result<ConsoleAdmin, ApiError> {
        let caller = self.web.administrator()?;
        Ok(ConsoleAdmin { user: self, caller })
    }
}

impl ConsoleAdmin {
    /// Returns the same administrator as a caller of the API.
    pub(super) fn caller(&self) -> AdminCaller {
        self.caller.clone()
    }

    /// Returns the administrator's name in the audit log.
    pub(super) fn actor(&self) -> &Actor {
        &self.caller.actor
    }

    /// Redirects the browser to a page that shows the success or the error.
    pub(super) fn done<T>(
        &self,
        path: &str,
        outcome: Result<T, ApiError>,
        what: impl Into<String>,
    ) -> Result<Response, ApiError> {
        match outcome {
            Ok(_) => Ok(self.user.go(path, Flash::good(what))),
            Err(error) if error.status().is_client_error() => {
                let response = self.user.go(path, Flash::bad(error.message()));
                Ok(respond::told_already(response, error))
            }
            Err(error) => Err(error),
        }
    }
}

impl From<ApiError> for NotSignedIn {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

impl IntoResponse for NotSignedIn {
    fn into_response(self) -> Response {
        match self {
            Self::Nobody(response) => *response,
            Self::Refused(error) => error.into_response(),
        }
    }
}

/// Stores a session's cookie in a browser.
pub(super) fn keep(response: &mut Response, app: &App, session: &WebSession) {
    let left = session.left(app.clock.now());
    set_cookie(
        response,
        app,
        SESSION,
        &session.seal(&app.sealing_keys),
        left,
    );
}

/// Deletes a browser's session cookie.
pub(super) fn forget(response: &mut Response, app: &App) {
    set_cookie(response, app, SESSION, "", Duration::ZERO);
}

/// Stores a sign-in that has begun at an issuer. The issuer redirects the browser to weir, and browsers send no strict
/// cookie with a request that another site causes.
pub(super) fn keep_pending(response: &mut Response, app: &App, pending: &PendingSignIn) {
    let sealed = pending.seal(&app.sealing_keys);
    set_lax_cookie(response, app, SIGN_IN, &sealed, pending::LIFETIME);
}

/// Returns the browser's sign-in that has begun at an issuer.
pub(super) fn pending(headers: &HeaderMap, app: &App) -> Option<PendingSignIn> {
    let sealed = cookie(headers, &name(app, SIGN_IN))?;
    PendingSignIn::open(sealed, &app.sealing_keys, app.clock.now())
}

/// Deletes a browser's sign-in that has begun at an issuer.
pub(super) fn forget_pending(response: &mut Response, app: &App) {
    set_lax_cookie(response, app, SIGN_IN, "", Duration::ZERO);
}

/// Returns the URL of a path of this gateway, as the request's browser reaches it.
pub(super) fn own_url(headers: &HeaderMap, app: &App, path: &str) -> Result<String, ApiError> {
    let host = snippets::host(headers);
    let url = host.and_then(|host| Url::parse(&(snippets::base(app, Some(host)) + path)).ok());
    url.map(String::from).ok_or_else(|| {
        let what = "The request has no valid Host header.";
        ApiError::new(ErrorCode::InvalidRequest, what)
    })
}

/// Returns a path of the console's own, or else the first page.
pub(super) fn own_path(path: &str) -> &str {
    let is_own =
        path == "/console" || path.starts_with("/console/") || path.starts_with("/console?");
    let is_plain = path
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    match is_own && is_plain && path.len() <= 1_000 {
        true => path,
        false => "/console",
    }
}

/// Returns the response for a request without a session.
fn nobody(parts: &Parts) -> NotSignedIn {
    let path = parts
        .uri
        .path_and_query()
        .map_or("/console", |path| path.as_str());
    let text = |name: &str| parts.headers.get(name).map(HeaderValue::as_bytes);
    let is_from_elsewhere = text("sec-fetch-site") == Some(b"cross-site");
    let response = if text(respond::BY_HTMX.as_str()).is_some() {
        respond::leave_by_htmx(SIGN_IN_PAGE)
    } else if parts.method == Method::GET && is_from_elsewhere {
        // Browsers do not send the cookie with a link from another site, but do with a request from this page.
        match respond::onward(own_path(path)) {
            Ok(response) => response,
            Err(error) => return NotSignedIn::Refused(error),
        }
    } else {
        let next = match parts.method {
            Method::GET => own_path(path),
            _ => "/console",
        };
        let mut query = url::form_urlencoded::Serializer::new("/console/sign-in?".to_owned());
        match next {
            "/console" => respond::see_other(SIGN_IN_PAGE),
            next => respond::see_other(&query.append_pair("next", next).finish()),
        }
    };
    NotSignedIn::Nobody(Box::new(response))
}

/// Opens the value that a page of this session left in a cookie.
fn open_left<T: DeserializeOwned>(
    sealed: &str,
    cookie: &str,
    form_token: &str,
    app: &App,
) -> Option<T> {
    let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
    let fields: &[&[u8]] = &[form_token.as_bytes(), cookie.as_bytes()];
    let keys = &app.sealing_keys;
    let plain = keys.unseal(Purpose::CONSOLE_NOTICE, fields, &sealed).ok()?;
    serde_json::from_slice(&plain).ok()
}

/// Returns whether browsers reach the console only over TLS: always, except in development over plain HTTP.
fn is_secure(app: &App) -> bool {
    !app.config.is_dev() || app.tls.is_some()
}

/// Returns a cookie's complete name. Its prefix guarantees that no other host and no plain-HTTP page of this host has
/// set it.
fn name(app: &App, name: &str) -> String {
    match is_secure(app) {
        true => format!("__Host-{name}"),
        false => name.to_owned(),
    }
}

fn set_cookie(response: &mut Response, app: &App, short: &str, value: &str, lives: Duration) {
    set_cookie_of(response, app, (short, value), "Strict", lives);
}

fn set_lax_cookie(response: &mut Response, app: &App, short: &str, value: &str, lives: Duration) {
    set_cookie_of(response, app, (short, value), "Lax", lives);
}

fn set_cookie_of(
    response: &mut Response,
    app: &App,
    (short, value): (&str, &str),
    same_site: &str,
    lives: Duration,
) {
    let (name, secure) = match is_secure(app) {
        true => (name(app, short), "; Secure"),
        false => (name(app, short), ""),
    };
    let seconds = lives.as_secs();
    let cookie = format!(
        "{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite={same_site}{secure}"
    );
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Returns the first cookie with a name.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).into_iter();
    cookies
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .find_map(|(found, value)| (found == name).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_the_console_are_its_own() {
        for own in ["/console", "/console/keys?x=1", "/console?day=1"] {
            assert_eq!(own_path(own), own);
        }
        for other in [
            "",
            "/",
            "//evil.example/console",
            "https://evil.example/console",
            "/consoles",
            "/console\\evil",
            "/console/\r\nset-cookie: x",
            "/console.evil.example",
        ] {
            assert_eq!(own_path(other), "/console", "{other}");
        }
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        for cookies in ["a=1; xb=2;b=3", "c=4=5"] {
            headers.append(header::COOKIE, HeaderValue::from_static(cookies));
        }
        assert_eq!(cookie(&headers, "b"), Some("3"));
        assert_eq!(cookie(&headers, "c"), Some("4=5"));
        assert_eq!(cookie(&headers, "d"), None);
    }
}
