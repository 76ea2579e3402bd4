//! What handlers may take of a request's body: JSON text, or a component.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::error::ApiError;
use weir_sandbox::limits::COMPONENT_BYTES;

/// How many times its limit a body may be that is read to be refused.
const DISCARDED: usize = 4;

/// The body of a request that says it is JSON, within the limits of size and time.
pub struct JsonBody {
    /// The text, whole.
    pub bytes: Bytes,
    /// Its share of the room for bodies; kept for as long as a copy of the body is.
    pub room: OwnedSemaphorePermit,
}

/// A WebAssembly component as a request's body, within the limits of a component's size and a body's time.
pub struct ComponentBody {
    /// The component, whole.
    pub bytes: Bytes,
    /// Its share of the room for bodies.
    pub room: OwnedSemaphorePermit,
}

impl FromRequest<App> for ComponentBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let is_component = content_type.is_some_and(|content_type| {
            let essence = essence(content_type.as_bytes());
            essence.eq_ignore_ascii_case(b"application/wasm")
                || essence.eq_ignore_ascii_case(b"application/octet-stream")
        });
        if !is_component {
            return Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UNSUPPORTED_MEDIA_TYPE",
                "Send the component's bytes as application/wasm.",
            ));
        }
        let (bytes, room) = read(request, app, COMPONENT_BYTES, component_too_large).await?;
        Ok(Self { bytes, room })
    }
}

impl FromRequest<App> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let headers = request.headers();
        let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        // No body at all needs no type; what needs a body finds it empty.
        let bodiless = content_type.is_none() && request.body().is_end_stream();
        if !bodiless && !is_json(content_type) {
            return Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UNSUPPORTED_MEDIA_TYPE",
                "Send the body as application/json.",
            ));
        }
        let limit = app.config.limits.bodies.body_bytes.get();
        let (bytes, room) = read(request, app, limit, too_large).await?;
        Ok(Self { bytes, room })
    }
}

/// Reads a body of at most so many bytes, in the time that it may take.
async fn read(
    request: Request,
    app: &App,
    limit: usize,
    too_large: fn(usize) -> ApiError,
) -> Result<(Bytes, OwnedSemaphorePermit), ApiError> {
    let headers = request.headers();
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UNSUPPORTED_MEDIA_TYPE",
            "Send the body without a content encoding.",
        ));
    }
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let timeout = app.config.limits.bodies.body_timeout();
    if length.is_some_and(|length| length > limit as u64) {
        // Who has announced the body and waits for a word needs none of it taken.
        if !headers.contains_key(header::EXPECT) {
            let _ = tokio::time::timeout(timeout, discard(request.into_body(), limit)).await;
        }
        return Err(too_large(limit));
    }
    // A body of unknown length is taken for one of the greatest.
    let room = app
        .admission
        .room_for_body(length.unwrap_or(limit as u64))
        .await?;
    let body = Limited::new(request.into_body(), limit).collect();
    match tokio::time::timeout(timeout, body).await {
        Ok(Ok(body)) => Ok((body.to_bytes(), room)),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limit)),
        Ok(Err(_)) => Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "INVALID_REQUEST",
            "The body broke off.",
        )),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "REQUEST_TIMEOUT",
            "The body took too long to arrive.",
        )),
    }
}

/// Reads what is refused, up to some times the limit: a client that still sends when the connection closes would see
/// that instead of the answer.
async fn discard(mut body: Body, limit: usize) {
    let mut left = DISCARDED * limit;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

fn is_json(content_type: Option<&[u8]>) -> bool {
    essence(content_type.unwrap_or_default()).eq_ignore_ascii_case(b"application/json")
}

/// A content type without its parameters.
fn essence(content_type: &[u8]) -> &[u8] {
    let mut parts = content_type.split(|&byte| byte == b';');
    parts.next().unwrap_or_default().trim_ascii()
}

/// The first of the load steps, before there is anything to load.
fn component_too_large(limit: usize) -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "PLUGIN_REFUSED",
        format!("The component fails a load step. size: it has more than {limit} bytes."),
    )
    .with_detail("step", "size")
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "PAYLOAD_TOO_LARGE",
        format!("The body has more than {limit} bytes."),
    )
}
