//! `/`: an introduction to weir for visitors with a browser.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use weir_errors::{ApiError, ErrorCode};

use super::frame::Frame;
use super::respond;

#[derive(Template)]
#[template(path = "console/welcome.html")]
struct Welcome {
    frame: Frame,
}

/// `GET /`
pub(super) async fn show_welcome() -> Result<Response, ApiError> {
    let frame = Frame::bare("weir, an inference gateway");
    respond::page(StatusCode::OK, &Welcome { frame })
}

/// `GET /console/{*path}`: returns 404 for unknown pages.
pub(super) async fn show_nothing() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "No page exists at this address.")
}
