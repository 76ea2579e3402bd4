//! What a page's form brings: its fields, and the proof that it is one of the console's own pages.

use std::collections::BTreeMap;

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::{HeaderMap, HeaderValue, header};
use weir_errors::{ApiError, ErrorCode};

use super::session::{ConsoleAdmin, ConsoleUser, NotSignedIn};
use crate::app::App;
use crate::cors;
use crate::request::UrlEncodedBody;

/// The hidden field of every form.
const FORM_TOKEN: &str = "form_token";

/// A form that a user has sent from a page of their own session.
pub(super) struct ConsoleForm {
    pub(super) user: ConsoleUser,
    pub(super) fields: Fields,
}

/// A form that an administrator has sent from a page of their own session.
pub(super) struct AdminForm {
    pub(super) admin: ConsoleAdmin,
    pub(super) fields: Fields,
}

/// A form's fields.
#[derive(Default)]
pub(super) struct Fields(BTreeMap<String, Vec<String>>);

/// What the domain has refused, for the page to show beside the field that it names.
#[derive(Default)]
pub(super) struct Refused(Option<ApiError>);

impl FromRequest<App> for ConsoleForm {
    type Rejection = NotSignedIn;

    async fn from_request(request: Request, app: &App) -> Result<Self, NotSignedIn> {
        require_own_page(request.headers())?;
        let (mut parts, body) = request.into_parts();
        let user = ConsoleUser::from_request_parts(&mut parts, app).await?;
        let fields = Fields::read(Request::from_parts(parts, body), app).await?;
        let token = fields.text(FORM_TOKEN);
        // In a time that says nothing of where they differ.
        let is_sessions = aws_lc_rs::constant_time::verify_slices_are_equal(
            token.as_bytes(),
            user.form_token().as_bytes(),
        );
        if is_sessions.is_err() {
            return Err(not_ours().into());
        }
        Ok(Self { user, fields })
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

impl Fields {
    /// Reads a form's fields.
    pub(super) async fn read(request: Request, app: &App) -> Result<Self, ApiError> {
        let UrlEncodedBody(bytes) = UrlEncodedBody::from_request(request, app).await?;
        let mut fields = BTreeMap::<_, Vec<_>>::new();
        for (name, value) in url::form_urlencoded::parse(&bytes).into_owned() {
            fields.entry(name).or_default().push(value);
        }
        Ok(Self(fields))
    }

    /// A field's text without the spaces around it; empty where it is left out.
    pub(super) fn text(&self, name: &str) -> &str {
        let first = self.0.get(name).and_then(|values| values.first());
        first.map_or("", |value| value.trim())
    }

    /// A field's text, unless it is empty.
    pub(super) fn filled(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Whether a box is checked.
    pub(super) fn is_checked(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All that is chosen of several.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let values = self.0.get(name).into_iter().flatten();
        let values = values.map(|value| value.trim().to_owned());
        values.filter(|value| !value.is_empty()).collect()
    }
}

impl Refused {
    pub(super) fn by(error: &ApiError) -> Self {
        Self(Some(error.clone()))
    }

    /// What to say beside a field.
    pub(super) fn at(&self, field: &str) -> Option<&str> {
        let error = self.0.as_ref()?;
        is_of(error, field).then(|| error.message())
    }

    /// What to say above a form that has these fields: what is beside none of them.
    pub(super) fn above(&self, fields: &[&str]) -> Option<&str> {
        let error = self.0.as_ref()?;
        let is_beside = fields.iter().any(|field| is_of(error, field));
        (!is_beside).then(|| error.message())
    }
}

/// Whether an error is about a field, or about a part of it, as in `models[0]`.
fn is_of(error: &ApiError, field: &str) -> bool {
    let part = error.param().and_then(|param| param.strip_prefix(field));
    part.is_some_and(|part| part.is_empty() || part.starts_with(['[', '.']))
}

/// Refuses what a page of another site has sent. Browsers say where a form comes from, in one way or the other.
pub(super) fn require_own_page(headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        Some(b"same-origin") => Ok(()),
        None if is_own_origin(headers) => Ok(()),
        _ => Err(not_ours()),
    }
}

/// Whether a request to sign in may come from where it comes from: our own page, or one of the web app's.
pub(super) fn may_sign_in(app: &App, headers: &HeaderMap) -> bool {
    require_own_page(headers).is_ok()
        || cors::listed_origin(&app.config.cors_origins, headers).is_some()
}

/// Whether a page's origin is the host that is asked. A proxy may have taken TLS off, so that the schemes may differ.
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
        "This form is not from a page of your session, or you have signed in anew since; go back, reload the page and try again.",
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
            // What a browser says itself counts more.
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
