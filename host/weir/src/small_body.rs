//! Small request bodies under `/admin`.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
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
        let body = Limited::new(request.into_body(), BODY_BYTES).collect();
        let body = match tokio::time::timeout(BODY_TIMEOUT, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) => {
                return Err(ApiError::new(
                    ErrorCode::PayloadTooLarge,
                    format!("The body is incomplete, or has more than {BODY_BYTES} bytes."),
                ));
            }
            Err(_) => {
                return Err(ApiError::new(
                    ErrorCode::RequestTimeout,
                    "The body took too long to arrive.",
                ));
            }
        };
        from_json(&body).map(Self)
    }
}
