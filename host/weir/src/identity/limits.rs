//! The limits of a key: whether it still works, and the models that it may use.

use weir_errors::{ApiError, ErrorCode};

use super::store;
use crate::node::Core;

/// Returns the models of an active key, for a task or swarm that uses it; empty means all models.
///
/// # Errors
///
/// 403 `KEY_ENDED` if the key was revoked or has expired, 503 if the database does not answer.
pub async fn require_working_key(core: &Core, key_id: &str) -> Result<Vec<String>, ApiError> {
    let now = core.clock.now();
    let models = store::models_of_working_key(&core.database, key_id, now).await;
    models.map_err(super::store_failed)?.ok_or_else(key_ended)
}

/// 403: the key of the task or swarm expired or was revoked.
pub fn key_ended() -> ApiError {
    ApiError::new(ErrorCode::KeyEnded, KEY_ENDED).with_no_retry()
}

/// The message of `KEY_ENDED`.
pub const KEY_ENDED: &str = "The API key of this task or swarm expired or was revoked.";

/// Refuses a model that a key may not use. The message may say so, because the caller holds the key.
pub fn require_model(allowed: &[String], model: &str) -> Result<(), ApiError> {
    if may_use(allowed, model) {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::ModelNotAllowed,
        format!("This key may not use the model {model}; GET /models lists the allowed models."),
    )
    .with_param("model")
    .with_detail("model", model)
    .with_no_retry())
}

/// Whether a key may use a model; an empty list allows all.
pub fn may_use(allowed: &[String], model: &str) -> bool {
    allowed.is_empty() || allowed.iter().any(|allowed| allowed == model)
}
