//! `/session/{id}`: read and delete the caller's session.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRef, Path, State};
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use weir_dialects as dialect;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::endpoints::{Access, Endpoints, Tenancy};
use weir_identity::roles::Permission;
use weir_identity::{Caller, IdentityParts, handlers};
use weir_storage::clock::Millis;

use super::{SessionKey, Sessions, unavailable};

/// Returns the endpoints of sessions.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Sessions: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
{
    Endpoints::new().row(
        Access::User(Permission::UseModels),
        handlers!(show_history, delete_session).tenancy(Tenancy::OwnByName),
    )
}

/// The messages of a session.
#[derive(Debug, Serialize, ToSchema)]
pub struct History {
    session_id: String,
    /// Messages, oldest first, in the format of Chat Completions, each with `created_at`.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
    /// Expiry without another turn, by ISO 8601.
    expires_at: String,
}

/// `GET /session/{id}/history`: returns the messages of the caller's session.
#[utoipa::path(
    get, path = "/session/{id}/history", tag = "sessions",
    params(("id" = String, Path, description = "The session's id.", min_length = 1, max_length = 256, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$")),
    responses(
        (status = 200, body = History),
        (status = 404, description = "`NOT_FOUND`: you have no session with this id."),
    ),
)]
pub async fn show_history(
    State(sessions): State<Sessions>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<History>, ApiError> {
    let key = SessionKey::new(caller.session_owner(), id)?;
    let held = sessions.find(&key).await.map_err(unavailable)?;
    let held = held.filter(|held| !held.conversation.is_empty());
    let held = held.ok_or_else(not_found)?;
    let messages = held.conversation.iter().map(|said| {
        let attachments: Vec<_> = said.attachments().collect();
        let mut message = dialect::write_message(&said.spoken(), &attachments);
        message["created_at"] = Millis(said.at).iso().into();
        message
    });
    Ok(Json(History {
        messages: messages.collect(),
        session_id: key.id,
        expires_at: held.expires_at.iso(),
    }))
}

/// `DELETE /session/{id}`: deletes the caller's session.
#[utoipa::path(
    delete, path = "/session/{id}", tag = "sessions",
    params(("id" = String, Path, description = "The session's id.", min_length = 1, max_length = 256, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$")),
    responses(
        (status = 204, description = "The session is deleted."),
        (status = 404, description = "`NOT_FOUND`: you have no session with this id."),
    ),
)]
pub async fn delete_session(
    State(sessions): State<Sessions>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let key = SessionKey::new(caller.session_owner(), id)?;
    let (values, now) = (&sessions.values, sessions.clock.now());
    match values.remove(&key.name(), now).await.map_err(unavailable)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(not_found()),
    }
}

fn not_found() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "No session has this id.")
}
