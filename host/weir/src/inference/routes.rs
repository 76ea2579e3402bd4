//! `POST /chat`, `POST /code` and their kin.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value};

use super::dialect::openai;
use super::idempotency::IdempotencyHeader;
use crate::app::App;
use crate::error::ApiError;
use crate::identity::service::{Scope, ServiceCaller};
use crate::identity::{self, Caller};
use crate::request::{JsonBody, RequestId};
use weir_ledger::{AccountId, Payer, RequestSource};

/// Bytes of an id in the body of a service's request.
const MAX_ID_BYTES: usize = 256;

/// `POST /chat` and `POST /v1/chat/completions`: answers a chat request in OpenAI's Chat Completions shape, at
/// once or as a stream.
pub async fn create_chat_completion(
    State(app): State<App>,
    caller: Caller,
    request_id: RequestId,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    complete(&app, caller, request_id, key, body, false).await
}

/// `POST /code`: the same, of models that can call tools.
pub async fn create_code_completion(
    State(app): State<App>,
    caller: Caller,
    request_id: RequestId,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    complete(&app, caller, request_id, key, body, true).await
}

async fn complete(
    app: &App,
    caller: Caller,
    request_id: RequestId,
    key: IdempotencyHeader,
    body: JsonBody,
    needs_tools: bool,
) -> Result<Response, ApiError> {
    // After the body: a client that sends slowly must not hold a turn meanwhile.
    let turn = app.admission.enter().await?;
    let mut call = openai::parse_chat(&body.bytes)?;
    call.needs_tools = needs_tools;
    let key = key.with_body(&body.bytes);
    let (held, payer) = ((turn, body.room), caller.payer());
    super::chat(app, held, payer, request_id, call, key).await
}

/// `POST /internal/agent/code`: the same for the user whom a service names in the body's `user_id`, and for the
/// task in its `task_id`, if any.
pub async fn create_agent_completion(
    State(app): State<App>,
    service: ServiceCaller,
    request_id: RequestId,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    service.require(Scope::ModelCall)?;
    let turn = app.admission.enter().await?;
    let (payer, request) = split_agent_body(&body.bytes)?;
    let mut call = openai::parse_chat(&request)?;
    call.needs_tools = true;
    if !identity::user_exists(&app, &payer.account.0).await? {
        return Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "UNKNOWN_USER",
            "There is no user of that id.",
        )
        .with_param("user_id"));
    }
    let key = key.with_body(&body.bytes);
    super::chat(&app, (turn, body.room), payer, request_id, call, key).await
}

/// Takes from a body what is not OpenAI's.
fn split_agent_body(body: &[u8]) -> Result<(Payer, Vec<u8>), ApiError> {
    let mut fields: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|_| ApiError::invalid_request("", "The body is no JSON object."))?;
    let mut id = |name: &str| match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id))
            if (1..=MAX_ID_BYTES).contains(&id.len()) && !id.contains(char::is_control) =>
        {
            Ok(Some(id))
        }
        Some(_) => Err(ApiError::invalid_request(
            name,
            format!("An id is a text of 1 to {MAX_ID_BYTES} bytes without control characters."),
        )),
    };
    let (user_id, task_id) = (id("user_id")?, id("task_id")?);
    let user_id = user_id.ok_or_else(|| {
        ApiError::invalid_request("user_id", "The id of the user who pays is missing.")
    })?;
    let payer = Payer {
        account: AccountId(user_id),
        source: RequestSource::Agent,
        source_id: task_id,
    };
    let request = serde_json::to_vec(&fields).map_err(|_| ApiError::internal())?;
    Ok((payer, request))
}
