//! `POST /v1/embeddings`, `POST /v1/rerank`, `POST /v2/rerank` and `POST /v1/moderations`.

use std::sync::Arc;

use axum::extract::{FromRef, State};
use axum::response::Response;
use weir_errors::ApiError;
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::roles::Permission;
use weir_identity::{Caller, IdentityParts, handlers};
use weir_kinds::{KindCall, embeddings, moderation, rerank};
use weir_request::context::RequestContext;
use weir_request::request::{BodyReader, JsonBody};
use weir_request::schema_names;
use weir_request::schemas::parameters::{CacheControl, Idempotency};

use crate::InferenceParts;
use crate::idempotency::IdempotencyHeader;
use crate::routes::{CapacityCheck, take_turn};

schema_names! {
    /// A request in OpenAI's Embeddings.
    EmbeddingRequest,
    /// Vectors.
    EmbeddingList,
    /// A request in Cohere's Rerank.
    RerankRequest,
    /// Documents in the order of their relevance.
    RankingAnswer,
    /// A request in OpenAI's Moderations.
    ModerationRequest,
    /// Verdicts.
    ModerationAnswer,
}

/// Returns the endpoints.
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
            handlers!(create_embeddings, create_ranking, create_moderation),
        )
        .row(
            Access::User(Permission::Infer),
            handlers!(create_ranking).at("/v2/rerank", "create_v2_ranking"),
        )
}

/// `POST /v1/embeddings`: makes a vector of each text, in the format of OpenAI's Embeddings.
#[utoipa::path(
    post, path = "/v1/embeddings", tag = "models",
    params(Idempotency, CacheControl),
    request_body = EmbeddingRequest,
    responses((status = 200, body = EmbeddingList)),
)]
pub async fn create_embeddings(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    retrieve(&parts, caller, context, key, body, embeddings::read).await
}

/// `POST /v1/rerank`: orders documents by their relevance to a query, in the format of Cohere's Rerank.
#[utoipa::path(
    post, path = "/v1/rerank", tag = "models",
    params(Idempotency, CacheControl),
    request_body = RerankRequest,
    responses((status = 200, body = RankingAnswer)),
)]
pub async fn create_ranking(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    retrieve(&parts, caller, context, key, body, rerank::read).await
}

/// `POST /v1/moderations`: finds harmful content in texts, in the format of OpenAI's Moderations.
#[utoipa::path(
    post, path = "/v1/moderations", tag = "models",
    params(Idempotency),
    request_body = ModerationRequest,
    responses((status = 200, body = ModerationAnswer)),
)]
pub async fn create_moderation(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    retrieve(&parts, caller, context, key, body, moderation::read).await
}

async fn retrieve(
    parts: &Arc<InferenceParts>,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
    read: impl Fn(&[u8]) -> Result<KindCall, ApiError>,
) -> Result<Response, ApiError> {
    let (customer, turn) = take_turn(parts, caller).await?;
    let call = read(&body.bytes)?;
    let key = key.with_body(&body.bytes);
    let held = (turn, body.room);
    crate::serve(parts, held, customer, context, call.into(), key, None).await
}
