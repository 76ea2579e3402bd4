//! How pages, redirects and errors are answered, and the headers that all of it has.

use askama::Template;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::Value;
use weir_errors::{ApiError, ErrorCode};

use super::frame::{self, Frame};
use crate::context::RequestContext;
use crate::surround::Told;

/// What a page may load and where its forms may lead: nothing but what is ours, and no script or style within it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// With no referrer at all, browsers would not say which origin a form comes from.
const REFERRERS: &str = "same-origin";

/// How a request tells that htmx has sent it, for a part of a page.
pub(super) const BY_HTMX: HeaderName = HeaderName::from_static("hx-request");

/// Where htmx is to send the browser.
const HTMX_REDIRECT: HeaderName = HeaderName::from_static("hx-redirect");

/// A page, or a part of one.
pub(super) fn page(status: StatusCode, page: &impl Template) -> Result<Response, ApiError> {
    let html = page.render().map_err(|error| {
        tracing::error!(%error, "rendering a page");
        ApiError::internal()
    })?;
    let media_type = HeaderValue::from_static("text/html; charset=utf-8");
    Ok((status, [(header::CONTENT_TYPE, media_type)], html).into_response())
}

/// Sends a browser on.
pub(super) fn see_other(path: &str) -> Response {
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

/// Sends a browser on from a request of htmx, which would follow a redirect by itself.
pub(super) fn leave_by_htmx(path: &str) -> Response {
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::OK, [(HTMX_REDIRECT, location)]).into_response()
}

#[derive(Template)]
#[template(path = "console/onward.html")]
struct Onward<'a> {
    frame: Frame,
    url: &'a str,
}

/// A page that sends a browser on by itself. Unlike a redirect, it makes the next request this site's own, so that the
/// session's cookie comes along; and it may lead a form's answer to another site, such as one to pay at.
pub(super) fn onward(url: &str) -> Result<Response, ApiError> {
    let frame = Frame::bare("One moment");
    page(StatusCode::OK, &Onward { frame, url })
}

#[derive(Template)]
#[template(path = "console/error.html")]
struct ErrorPage<'a> {
    frame: Frame,
    message: &'a str,
    code: &'a str,
    request_id: &'a str,
}

/// The layer around the console's routes: errors become pages, and every answer has the headers of a page.
pub(super) async fn as_pages(context: RequestContext, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let error = response.extensions_mut().remove::<ApiError>();
    let status = response.status();
    let error = match error {
        None if status.is_client_error() || status.is_server_error() => {
            // An extractor of axum's, whose text is not ours.
            let is_told = response.extensions().get::<Told>().is_some();
            (!is_told).then(|| {
                ApiError::new(ErrorCode::InvalidRequest, "The request is malformed.")
                    .with_status(status)
            })
        }
        error => error,
    };
    if let Some(error) = error {
        response = error_page(&error, context.shown_id());
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, REFERRERS),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn error_page(error: &ApiError, request_id: &str) -> Response {
    let told = ErrorPage {
        frame: Frame::bare(frame::title_of(error.status())),
        message: error.message(),
        code: error.code(),
        request_id,
    };
    let Ok(page) = page(error.status(), &told) else {
        return ApiError::internal().into_response();
    };
    // When trying again makes sense is among its headers.
    let mut response = error.render(error.status(), &Value::Null);
    response.headers_mut().remove(header::WWW_AUTHENTICATE);
    response.headers_mut().extend(page.headers().clone());
    *response.body_mut() = page.into_body();
    told_already(response, error.clone())
}

/// A page that tells an error itself, which the log is to have all the same.
pub(super) fn told_already(mut response: Response, error: ApiError) -> Response {
    response.extensions_mut().insert(Told(error));
    response
}
