//! `POST /v1/messages` and `POST /v1/messages/count_tokens`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde_json::{Value, json};
use weir_dialects::anthropic_messages::{read, read_uncounted};
use weir_errors::ApiError;
use weir_identity::Caller;
use weir_request::context::RequestContext;
use weir_request::request::JsonBody;
use weir_request::schemas::parameters::{CacheControl, Idempotency};
use weir_request::schemas::vendors::{
    CountTokensRequest, MessagesAnswer, MessagesRequest, MessagesStreamEvent, TokenCount,
};

use crate::InferenceParts;
use crate::files;
use crate::idempotency::IdempotencyHeader;
use crate::resolve;
use crate::routes::{self, CapacityCheck, take_turn};

/// `POST /v1/messages`: responds in the format of Anthropic's Messages, as JSON or as a stream.
#[utoipa::path(
    post, path = "/v1/messages", tag = "models",
    params(Idempotency, CacheControl),
    request_body = MessagesRequest,
    responses(
        (status = 200, content((MessagesAnswer = "application/json"), (MessagesStreamEvent = "text/event-stream"))),
    ),
)]
pub async fn create_message(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    headers: HeaderMap,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let read = |body: &[u8]| read(body, &headers);
    routes::complete(&parts, caller, context, key, body, read).await
}

/// `POST /v1/messages/count_tokens`: estimates the input tokens of a message. The request reaches no provider, and is
/// free.
#[utoipa::path(
    post, path = "/v1/messages/count_tokens", tag = "models",
    request_body = CountTokensRequest,
    responses((status = 200, body = TokenCount)),
)]
pub async fn count_tokens(
    State(parts): State<Arc<InferenceParts>>,
    caller: Caller,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    // The body takes as much memory as a message's.
    let (customer, _turn) = take_turn(&parts, caller).await?;
    let call = read_uncounted(&body.bytes, &headers)?;
    let catalog = parts.catalog.load();
    customer.require(&catalog, &call.request.model)?;
    let documents = files::read_documents(&parts, &call.request, &call.attachments).await?;
    let tokens = resolve::estimated_input(&catalog, &call, &documents)?;
    Ok(Json(json!({ "input_tokens": tokens })))
}
