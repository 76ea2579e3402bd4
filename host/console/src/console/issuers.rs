//! Sign-in at an OpenID Connect issuer: the browser leaves for the issuer, and returns with a code.
//!
//! The issuer may also end sessions without a browser, by a logout token.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use weir_app::App;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::issuer_logout;
use weir_identity::sign_in::pending::PendingSignIn;
use weir_identity::web_session::WebSession;
use weir_request::query::ListQuery;

use super::form::FormFields;
use super::{respond, session, sign_in};

/// `GET /console/sign-in/oidc/{index}`: leads to the issuer at this place in the settings.
pub(super) async fn begin_sign_in(
    State(app): State<App>,
    Path(index): Path<usize>,
    headers: HeaderMap,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    let issuer =
        app.identity.sign_in.at(index).ok_or_else(|| {
            ApiError::new(ErrorCode::NotFound, "No issuer exists at this address.")
        })?;
    let next = query.text("next")?.unwrap_or_default();
    let redirect_uri = session::own_url(&headers, &app, "/console/sign-in/callback")?;
    let pending = PendingSignIn::begin(
        &issuer.settings().issuer,
        redirect_uri,
        session::own_path(&next),
        app.clock.now(),
    );
    let url = issuer.authorization_url(&pending).await?;
    let mut response = respond::see_other(url.as_str());
    session::keep_pending(&mut response, &app, &pending);
    Ok(response)
}

/// `GET /console/sign-in/callback`: ends the sign-in after the issuer's redirect.
pub(super) async fn end_sign_in(
    State(app): State<App>,
    parts: Parts,
) -> Result<Response, ApiError> {
    let pending = session::pending(&parts.headers, &app);
    let next = pending.as_ref().map_or("", PendingSignIn::next);
    let what = "The sign-in has failed, or took more than 10 minutes. Try again.";
    let begun = WebSession::begin_by_issuer(&parts, &app.identity, pending.as_ref()).await;
    let mut response = match begun {
        Ok(begun) => {
            // After a redirect from the issuer, browsers would not send the session's cookie.
            let mut response = respond::onward(session::own_path(next))?;
            session::keep(&mut response, &app, &begun);
            response
        }
        Err(error) => sign_in::show_refused(&app, next, error, what)?,
    };
    session::forget_pending(&mut response, &app);
    Ok(response)
}

/// `POST /console/sign-in/backchannel-logout`: ends the sessions that the issuer's logout token names.
pub(super) async fn receive_logout(
    State(app): State<App>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let fields = FormFields::read(request, &app).await?;
    issuer_logout::end_sessions(&parts, &app.identity, fields.text("logout_token")).await?;
    Ok(StatusCode::OK)
}
