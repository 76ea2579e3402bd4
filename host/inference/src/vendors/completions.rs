//! `POST /v1/completions`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use weir_dialects::openai_completions::read;
use weir_errors::ApiError;
use weir_identity::Caller;
use weir_request::context::RequestContext;
use weir_request::request::JsonBody;
use weir_request::schemas::parameters::{CacheControl, Idempotency};
use weir_request::schemas::vendors::{CompletionRequest, TextCompletion, TextStreamEvent};

use crate::InferenceParts;
use crate::idempotency::IdempotencyHeader;
use crate::routes::{self, CapacityCheck};

/// `POST /v1/completions`: completes a prompt in the format of OpenAI's Completions, as JSON or as a stream.
#[utoipa::path(
    post, path = "/v1/completions", tag = "models",
    params(Idempotency, CacheControl),
    request_body = CompletionRequest,
    responses(
        (status = 200, content((TextCompletion = "application/json"), (TextStreamEvent = "text/event-stream"))),
    ),
)]
pub async fn create_completion(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    routes::complete(&parts, caller, context, key, body, read).await
}
