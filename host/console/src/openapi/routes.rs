//! `GET /openapi.json`.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};

use super::document::OpenApiDocument;

/// `GET /openapi.json`: the OpenAPI document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "service",
    responses((status = 200, body = Object), (status = 304, description = "The document is unchanged since the version in `If-None-Match`.")),
)]
pub async fn get_document(document: &'static OpenApiDocument, headers: HeaderMap) -> Response {
    let etag = [(header::ETAG, document.etag.as_str())];
    let known = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut known = known.filter_map(|known| known.to_str().ok());
    if known.any(|known| known == "*" || known.contains(&document.etag)) {
        return (StatusCode::NOT_MODIFIED, etag).into_response();
    }
    let json = [(header::CONTENT_TYPE, "application/json")];
    (etag, json, document.text.clone()).into_response()
}
