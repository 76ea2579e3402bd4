//! Small request bodies under `/admin`.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use weir_errors::{ApiError, ErrorCode};

use crate::json::from_json;

/// Maximum bytes of a body.
const BODY_BYTES: usize = 64 << 10;

/// Time limit for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A JSON body, parsed as `T`.
pub struct SmallBody<T>(pub T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for SmallBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        from_json(&read(request, BODY_BYTES).await?).map(Self)
    }
}

/// Reads a body of at most `max_bytes`.
///
/// # Errors
///
/// 413 for a longer or incomplete body, 408 for a slow one.
pub async fn read(request: Request, max_bytes: usize) -> Result<Bytes, ApiError> {
    let body = Limited::new(request.into_body(), max_bytes).collect();
    match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(ApiError::new(
            ErrorCode::PayloadTooLarge,
            format!("The body is incomplete, or has more than {max_bytes} bytes."),
        )),
        Err(_) => Err(ApiError::new(
            ErrorCode::RequestTimeout,
            "The body took too long to arrive.",
        )),
    }
}
