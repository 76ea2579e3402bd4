//! A page's form: its fields, and the token that proves that the console's own page sent it.

use std::collections::BTreeMap;

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use weir_accounts::billing::budgets::RequestedBudgets;
use weir_app::App;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::Credits;
use weir_request::cors;
use weir_request::limits::data::DataLimits;
use weir_request::request::UrlEncodedBody;

use super::session::{ConsoleAdmin, ConsoleUser, NotSignedIn};

/// The hidden field of every form.
const FORM_TOKEN: &str = "form_token";

/// The header with the token in requests of the console's scripts.
const TOKEN_HEADER: &str = "x-form-token";

/// A form from a page of the user's own session.
pub(super) struct ConsoleForm {
    pub(super) user: ConsoleUser,
    pub(super) fields: FormFields,
}

/// A form from a page of the administrator's own session.
pub(super) struct AdminForm {
    pub(super) admin: ConsoleAdmin,
    pub(super) fields: FormFields,
}

#[derive(Default)]
pub(super) struct FormFields(BTreeMap<String, Vec<String>>);

/// An error that the page shows beside the field that it names.
#[derive(Default)]
pub(super) struct FormError(Option<ApiError>);

impl FromRequest<App> for ConsoleForm {
    type Rejection = NotSignedIn;

    async fn from_request(request: Request, app: &App) -> Result<Self, NotSignedIn> {
        require_own_page(request.headers())?;
        let (mut parts, body) = request.into_parts();
        let user = ConsoleUser::from_request_parts(&mut parts, app).await?;
        let fields = FormFields::read(Request::from_parts(parts, body), app).await?;
        require_token(&user, fields.text(FORM_TOKEN).as_bytes())?;
        Ok(Self { user, fields })
    }
}

/// The user of a script of the console's own page, which sends the session's token in [`TOKEN_HEADER`].
pub(super) struct ScriptUser(pub(super) ConsoleUser);

impl FromRequestParts<App> for ScriptUser {
    type Rejection = NotSignedIn;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, NotSignedIn> {
        require_own_page(&parts.headers)?;
        let user = ConsoleUser::from_request_parts(parts, app).await?;
        let token = parts.headers.get(TOKEN_HEADER);
        require_token(&user, token.map_or(b"", HeaderValue::as_bytes))?;
        Ok(Self(user))
    }
}

impl FromRequest<App> for AdminForm {
    type Rejection = NotSignedIn;

    async fn from_request(request: Request, app: &App) -> Result<Self, NotSignedIn> {
        let ConsoleForm { user, fields } = ConsoleForm::from_request(request, app).await?;
        let admin = user.administrator()?;
        Ok(Self { admin, fields })
    }
}

impl FormFields {
    pub(super) async fn read(request: Request, app: &App) -> Result<Self, ApiError> {
        let UrlEncodedBody(bytes) = UrlEncodedBody::from_request(request, app).await?;
        let mut fields = BTreeMap::<_, Vec<_>>::new();
        for (name, value) in url::form_urlencoded::parse(&bytes).into_owned() {
            fields.entry(name).or_default().push(value);
        }
        Ok(Self(fields))
    }

    /// Returns a field's text without the spaces around it; empty if the field is missing.
    pub(super) fn text(&self, name: &str) -> &str {
        let first = self.0.get(name).and_then(|values| values.first());
        first.map_or("", |value| value.trim())
    }

    /// Returns a field's text unless it is empty.
    pub(super) fn filled(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Returns the budget in the fields `budget_credits` and `window`; none if there are no credits.
    pub(super) fn budget(&self) -> Result<RequestedBudgets, ApiError> {
        let Some(credits) = self.filled("budget_credits") else {
            return Ok(RequestedBudgets::default());
        };
        let wrong = |field: &str, what| ApiError::invalid_request(field, what);
        let credits = Credits::parse(credits);
        let what = "Enter a number of credits.";
        let credits = credits.ok_or_else(|| wrong("budget_credits", what))?;
        let window = self.filled("window").map(str::parse).transpose();
        let window = window.map_err(|_| wrong("window", "Choose a window from the list."))?;
        Ok(RequestedBudgets {
            budgets: None,
            budget_credits: Some(credits),
            window,
        })
    }

    /// Returns the limits on providers in the fields `regions` and `max_retention_days`.
    pub(super) fn data_limits(&self) -> Result<DataLimits, ApiError> {
        let field = |name| (name, self.filled(name));
        DataLimits::parse(field("regions"), field("max_retention_days"))
    }

    /// Returns whether the form has a field, even if it is empty.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns whether a box is checked.
    pub(super) fn is_checked(&self, name: &str) -> bool {
        self.has(name)
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let values = self.0.get(name).into_iter().flatten();
        let values = values.map(|value| value.trim().to_owned());
        values.filter(|value| !value.is_empty()).collect()
    }
}

impl FormError {
    pub(super) fn by(error: &ApiError) -> Self {
        Self(Some(error.clone()))
    }

    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the error message beside a field.
    pub(super) fn at(&self, field: &str) -> Option<&str> {
        let error = self.0.as_ref()?;
        is_of(error, field).then(|| error.message())
    }

    /// Returns the error message above a form with these fields: the message that belongs to none of them.
    pub(super) fn above(&self, fields: &[&str]) -> Option<&str> {
        let error = self.0.as_ref()?;
        let is_beside = fields.iter().any(|field| is_of(error, field));
        (!is_beside).then(|| error.message())
    }
}

/// Returns whether an error names a field, or a part of it, as in `models[0]`.
fn is_of(error: &ApiError, field: &str) -> bool {
    let part = error.param().and_then(|param| param.strip_prefix(field));
    part.is_some_and(|part| part.is_empty() || part.starts_with(['[', '.']))
}

/// Rejects a request without the token of the session's pages.
fn require_token(user: &ConsoleUser, token: &[u8]) -> Result<(), ApiError> {
    // Constant-time comparison hides the position of the first difference.
    let own = user.form_token().as_bytes();
    aws_lc_rs::constant_time::verify_slices_are_equal(token, own).map_err(|_| not_ours())
}

/// Rejects a form from another site's page. Browsers send a form's origin in one of two headers.
pub(super) fn require_own_page(headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        Some(b"same-origin") => Ok(()),
        None if is_own_origin(headers) => Ok(()),
        _ => Err(not_ours()),
    }
}

/// Returns whether a sign-in request may come from its origin: our own page, or the web app's.
pub(super) fn may_sign_in(app: &App, headers: &HeaderMap) -> bool {
    require_own_page(headers).is_ok()
        || cors::listed_origin(&app.config.cors_origins, headers).is_some()
}

/// Returns whether a page's origin is the requested host. The schemes may differ behind a proxy that terminates TLS.
fn is_own_origin(headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    match (text(header::ORIGIN), text(header::HOST)) {
        (Some(origin), Some(host)) => {
            let origin = origin.split_once("://").map(|(_, authority)| authority);
            origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
        }
        _ => false,
    }
}

fn not_ours() -> ApiError {
    ApiError::new(
        ErrorCode::FormNotAccepted,
        "This form belongs to another session, perhaps because you have signed in again; go back, reload the page and try again.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(headers: &[(&'static str, &'static str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        require_own_page(&map).is_ok()
    }

    #[test]
    fn only_our_own_pages_send_forms() {
        let host = ("host", "weir.example:8443");
        assert!(own(&[host, ("origin", "https://weir.example:8443")]));
        assert!(own(&[host, ("sec-fetch-site", "same-origin")]));
        for other in [
            vec![host],
            vec![host, ("origin", "null")],
            vec![host, ("origin", "https://weir.example")],
            vec![host, ("origin", "https://evil.example:8443")],
            vec![host, ("sec-fetch-site", "same-site")],
            vec![host, ("sec-fetch-site", "none")],
            // The browser's own header takes precedence.
            vec![
                host,
                ("sec-fetch-site", "cross-site"),
                ("origin", "https://weir.example:8443"),
            ],
        ] {
            assert!(!own(&other), "{other:?}");
        }
    }
}
