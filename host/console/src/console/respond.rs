//! Pages, redirects and error responses, and the headers of all of them.

use askama::Template;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::Value;
use weir_app::request_layer::PageError;
use weir_errors::{ApiError, ErrorCode};
use weir_request::context::RequestContext;

use super::frame::{self, Frame};

/// The content security policy: pages load only this site's files, forms lead only to this site, and inline scripts and
/// styles are off.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Forms need a referrer: without one, browsers would not send the form's origin.
const REFERRERS: &str = "same-origin";

/// The header of requests that htmx sends to load a part of a page.
pub(super) const BY_HTMX: HeaderName = HeaderName::from_static("hx-request");

/// The header with which htmx navigates the browser.
const HTMX_REDIRECT: HeaderName = HeaderName::from_static("hx-redirect");

/// Renders a page, or a part of one.
pub(super) fn page(status: StatusCode, page: &impl Template) -> Result<Response, ApiError> {
    let html = page.render().map_err(|error| {
        tracing::error!(%error, "rendering a page");
        ApiError::internal()
    })?;
    let media_type = HeaderValue::from_static("text/html; charset=utf-8");
    Ok((status, [(header::CONTENT_TYPE, media_type)], html).into_response())
}

/// Redirects a browser.
pub(super) fn see_other(path: &str) -> Response {
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

/// Navigates a browser in response to a request of htmx, which would follow a redirect itself.
pub(super) fn leave_by_htmx(path: &str) -> Response {
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::OK, [(HTMX_REDIRECT, location)]).into_response()
}

#[derive(Template)]
#[template(path = "console/onward.html")]
struct RedirectPage<'a> {
    frame: Frame,
    url: &'a str,
}

/// Renders a page that navigates the browser to another address. Unlike after a redirect, the next request originates
/// from this site, so that the browser sends the session's cookie. Such a page may also lead from a form to another
/// site, such as a payment page.
pub(super) fn onward(url: &str) -> Result<Response, ApiError> {
    let frame = Frame::bare("One moment");
    page(StatusCode::OK, &RedirectPage { frame, url })
}

#[derive(Template)]
#[template(path = "console/error.html")]
struct ErrorPage<'a> {
    frame: Frame,
    message: &'a str,
    code: &'a str,
    request_id: &'a str,
}

/// The layer around the console's routes: it renders errors as pages, and adds the page headers to every response.
pub(super) async fn as_pages(context: RequestContext, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let error = response.extensions_mut().remove::<ApiError>();
    let status = response.status();
    let error = match error {
        None if status.is_client_error() || status.is_server_error() => {
            // An extractor of axum has rejected the request with its own text.
            let is_told = response.extensions().get::<PageError>().is_some();
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
    // The retry delay is among the error's headers.
    let mut response = error.render(error.status(), &Value::Null);
    response.headers_mut().remove(header::WWW_AUTHENTICATE);
    response.headers_mut().extend(page.headers().clone());
    *response.body_mut() = page.into_body();
    told_already(response, error.clone())
}

/// Marks a page that already shows its error, so that the log contains the error, too.
pub(super) fn told_already(mut response: Response, error: ApiError) -> Response {
    response.extensions_mut().insert(PageError(error));
    response
}
