//! `POST /v1/responses`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use weir_dialects::openai_responses::read;
use weir_errors::ApiError;
use weir_identity::Caller;
use weir_request::context::RequestContext;
use weir_request::request::JsonBody;
use weir_request::schemas::parameters::{CacheControl, Idempotency};
use weir_request::schemas::vendors::{ResponsesAnswer, ResponsesRequest, ResponsesStreamEvent};

use crate::InferenceParts;
use crate::idempotency::IdempotencyHeader;
use crate::routes::{self, CapacityCheck};

/// `POST /v1/responses`: responds in the format of OpenAI's Responses, as JSON or as a stream.
#[utoipa::path(
    post, path = "/v1/responses", tag = "models",
    params(Idempotency, CacheControl),
    request_body = ResponsesRequest,
    responses(
        (status = 200, content((ResponsesAnswer = "application/json"), (ResponsesStreamEvent = "text/event-stream"))),
    ),
)]
pub async fn create_response(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    routes::complete(&parts, caller, context, key, body, read).await
}
