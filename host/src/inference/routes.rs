//! `POST /chat` and `POST /v1/chat/completions`.

use axum::extract::State;
use axum::response::Response;

use super::dialect::openai;
use crate::app::App;
use crate::error::ApiError;
use crate::identity::Caller;
use crate::request::{JsonBody, RequestId};

/// Answers a chat request in OpenAI's Chat Completions shape, at once or as a stream.
pub async fn create_chat_completion(
    State(app): State<App>,
    _: Caller,
    request_id: RequestId,
    body: JsonBody,
) -> Result<Response, ApiError> {
    // After the body: a client that sends slowly must not hold a turn meanwhile.
    let turn = app.admission.enter().await?;
    let call = openai::parse_chat(&body.bytes)?;
    super::chat(&app, (turn, body.room), request_id, call).await
}
