//! The limits of a key: whether it still works, and the models that it may use.

use weir_errors::{ApiError, ErrorCode};

use super::store;
use crate::node::Core;

/// The models that a key may use, all if empty, on behalf of what was defined with it earlier.
///
/// # Errors
///
/// 403 `KEY_ENDED` if the key was revoked or has expired, 503 if the database does not answer.
pub async fn require_working_key(core: &Core, key_id: &str) -> Result<Vec<String>, ApiError> {
    let now = core.clock.now();
    let models = store::models_of_working_key(&core.database, key_id, now).await;
    models.map_err(super::store_failed)?.ok_or_else(key_ended)
}

/// 403: the key that something was asked for with works no more.
pub fn key_ended() -> ApiError {
    ApiError::new(ErrorCode::KeyEnded, KEY_ENDED).with_no_retry()
}

/// What `KEY_ENDED` means, for people.
pub const KEY_ENDED: &str = "The API key that this was asked for with was revoked or has expired.";

/// Refuses a model that a key may not use. Who may use which is the key's own business: it is no secret to who has it.
pub fn require_model(allowed: &[String], model: &str) -> Result<(), ApiError> {
    if may_use(allowed, model) {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::ModelNotAllowed,
        format!("This key may not use the model {model}; GET /models lists those that it may."),
    )
    .with_param("model")
    .with_detail("model", model)
    .with_no_retry())
}

/// Whether a model is among those that a key may use; all are where none is named.
pub fn may_use(allowed: &[String], model: &str) -> bool {
    allowed.is_empty() || allowed.iter().any(|allowed| allowed == model)
}
