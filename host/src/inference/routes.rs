//! `POST /chat`, `POST /code` and their kin.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value};

use super::dialect::openai;
use crate::app::App;
use crate::error::ApiError;
use crate::identity::service::{Scope, ServiceCaller};
use crate::identity::{self, Caller};
use crate::request::{JsonBody, RequestId};

/// `POST /chat` and `POST /v1/chat/completions`: answers a chat request in OpenAI's Chat Completions shape, at
/// once or as a stream.
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

/// `POST /code`: the same, of models that can call tools.
pub async fn create_code_completion(
    State(app): State<App>,
    _: Caller,
    request_id: RequestId,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let turn = app.admission.enter().await?;
    let mut call = openai::parse_chat(&body.bytes)?;
    call.needs_tools = true;
    super::chat(&app, (turn, body.room), request_id, call).await
}

/// `POST /internal/agent/code`: the same for the user whom a service names in the body's `user_id`.
pub async fn create_agent_completion(
    State(app): State<App>,
    service: ServiceCaller,
    request_id: RequestId,
    body: JsonBody,
) -> Result<Response, ApiError> {
    service.require(Scope::ModelCall)?;
    let turn = app.admission.enter().await?;
    let (user_id, request) = split_agent_body(&body.bytes)?;
    let mut call = openai::parse_chat(&request)?;
    call.needs_tools = true;
    if !identity::user_exists(&app, &user_id).await? {
        return Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "UNKNOWN_USER",
            "There is no user of that id.",
        )
        .with_param("user_id"));
    }
    super::chat(&app, (turn, body.room), request_id, call).await
}

/// Takes from a body what is not OpenAI's.
fn split_agent_body(body: &[u8]) -> Result<(String, Vec<u8>), ApiError> {
    let invalid = |message| ApiError::invalid_request("user_id", message);
    let mut fields: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|_| ApiError::invalid_request("", "The body is no JSON object."))?;
    match fields.remove("user_id") {
        Some(Value::String(user_id)) => {
            let request = serde_json::to_vec(&fields).map_err(|_| ApiError::internal())?;
            Ok((user_id, request))
        }
        Some(_) => Err(invalid("The user's id is a text.")),
        None => Err(invalid("The id of the user who pays is missing.")),
    }
}
