//! `POST /chat` and `POST /code`.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts, State};
use axum::response::Response;
use http::request::Parts;
use weir_dialects::{self as dialect, ChatCall};
use weir_errors::ApiError;
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::roles::Permission;
use weir_identity::{Caller, IdentityParts, handlers};
use weir_request::admission::AdmissionPermit;
use weir_request::context::RequestContext;
use weir_request::request::{BodyReader, JsonBody};
use weir_request::schemas::parameters::{CacheControl, Idempotency};
use weir_request::schemas::vendors::{ChatCompletion, ChatCompletionRequest, ChatStreamEvent};

use super::Customer;
use super::InferenceParts;
use super::attended;
use super::idempotency::IdempotencyHeader;

/// Returns weir's own endpoints of chats.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<InferenceParts>: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new()
        .row(
            Access::User(Permission::Infer),
            handlers!(create_chat_completion, create_code_completion),
        )
        .row(
            Access::User(Permission::Infer),
            handlers!(create_chat_completion).at("/chat", "create_chat"),
        )
}

/// The check that a permit or a place in the queue is free, before weir reads or authenticates a request. Under
/// overload, most requests end here, so it must be cheap. It also marks the request as one that calls a model.
pub struct CapacityCheck;

impl<S> FromRequestParts<S> for CapacityCheck
where
    Arc<InferenceParts>: FromRef<S>,
    S: Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        if let Some(context) = parts.extensions.get::<RequestContext>() {
            context.note_model_call();
        }
        let parts = Arc::<InferenceParts>::from_ref(state);
        parts.admission.check_room().map(|()| Self)
    }
}

/// `POST /chat` and `POST /v1/chat/completions`: responds to a chat request in the format of OpenAI's Chat Completions,
/// as JSON or as a stream.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "models",
    params(Idempotency, CacheControl),
    request_body = ChatCompletionRequest,
    responses(
        (status = 200, content((ChatCompletion = "application/json"), (ChatStreamEvent = "text/event-stream"))),
    ),
)]
pub async fn create_chat_completion(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    complete(&parts, caller, context, key, body, dialect::read_own).await
}

/// `POST /code`: like `/chat`, for models that can call tools.
#[utoipa::path(
    post, path = "/code", tag = "models",
    params(Idempotency, CacheControl),
    request_body = ChatCompletionRequest,
    responses(
        (status = 200, content((ChatCompletion = "application/json"), (ChatStreamEvent = "text/event-stream"))),
    ),
)]
pub async fn create_code_completion(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let read = |body: &[u8]| {
        let mut call = dialect::read_own(body)?;
        call.needs_tools = true;
        Ok(call)
    };
    complete(&parts, caller, context, key, body, read).await
}

/// Waits for the permit of a user's request. Handlers call it after they have the body, so that a slow client does not hold
/// a permit meanwhile.
pub(super) async fn take_turn(
    parts: &InferenceParts,
    caller: Caller,
) -> Result<(Customer, AdmissionPermit), ApiError> {
    let limits = &caller.limits;
    let turn = parts.admission.enter(&limits.account, limits.plan).await?;
    Ok((Customer::of(caller), turn))
}

/// Serves a user's request; `read` parses its body.
pub async fn complete(
    parts: &Arc<InferenceParts>,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
    read: impl Fn(&[u8]) -> Result<ChatCall, ApiError>,
) -> Result<Response, ApiError> {
    let (customer, turn) = take_turn(parts, caller).await?;
    let droppable = parts.ignore_fields.with_those_of(&context)?;
    let (call, dropped) = droppable.read(&body.bytes, read)?;
    if !dropped.is_empty() {
        context.note_dropped(dropped);
    }
    let key = key.with_body(&body.bytes);
    let held = (turn, body.room);
    // The handler's future, which axum copies twice, is small without it.
    attended::boxed(|| super::serve(parts, held, customer, context, call.into(), key, None)).await
}
